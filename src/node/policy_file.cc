#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "base/fd.h"
#include "base/files.h"
#include "node/slice_files.h"

namespace tessera::node {
namespace {

using contract::PolicyCard;
using contract::PolicyFile;
using contract::PolicyGate;
using contract::PolicyHeader;

// More than any policy of any version; what is longer is no policy.
constexpr std::size_t kMostPolicyBytes = 1u << 20;

template <std::size_t N>
void CopyText(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

template <std::size_t N>
std::string TextOf(const char (&from)[N]) {
  return std::string(from, strnlen(from, N));
}

template <typename T>
T At(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// True when `count` records of `stride` lie in the file and each is at least as long as we know it.
bool TableFits(std::size_t file_bytes, std::size_t offset, std::size_t stride, std::size_t count,
               std::size_t known) {
  return offset >= sizeof(PolicyHeader) && offset <= file_bytes && offset % 8 == 0 &&
         stride >= known && stride % 8 == 0 && stride <= file_bytes &&
         count * stride <= file_bytes - offset;
}

Result<PolicyHeader> CheckedHeader(const std::string& path, const std::string& bytes) {
  if (bytes.size() < sizeof(PolicyHeader))
    return Fail(Code::kDataLoss, path + ": too short for a policy");
  auto header = At<PolicyHeader>(bytes, 0);
  if (header.magic != contract::kPolicyMagic)
    return Fail(Code::kDataLoss, path + ": not a policy of Tessera");
  if (header.layout != contract::kPolicyLayout) {
    return Fail(Code::kUnimplemented, path + ": layout " + std::to_string(header.layout) +
                                          ", this tessera reads layout " +
                                          std::to_string(contract::kPolicyLayout));
  }
  if (header.card_count < 1 || header.card_count > contract::kMaxCards ||
      header.file_bytes > bytes.size() ||
      !TableFits(header.file_bytes, header.cards_offset, header.card_stride, header.card_count,
                 sizeof(PolicyCard)) ||
      !TableFits(header.file_bytes, header.gates_offset, header.gate_stride, header.card_count,
                 sizeof(PolicyGate))) {
    return Fail(Code::kDataLoss, path + ": sizes in the header do not agree with the file");
  }
  return header;
}

// A tenant's owner may truncate the file while it is mapped here: the SIGBUS ends the change, not
// the program.
thread_local sigjmp_buf g_bus_return;
void OnBusError(int) { siglongjmp(g_bus_return, 1); }

class BusErrorGuard {
 public:
  BusErrorGuard() {
    struct sigaction action{};
    action.sa_handler = OnBusError;
    sigaction(SIGBUS, &action, &before_);
  }
  ~BusErrorGuard() { sigaction(SIGBUS, &before_, nullptr); }

 private:
  struct sigaction before_{};
};

template <typename T>
void Store(char* base, std::size_t offset, T value) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(base + offset)).store(value, std::memory_order_release);
}

void StoreChanges(char* base, const PolicyHeader& header,
                  const std::vector<PolicyCardChange>& cards) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    std::size_t card = header.cards_offset + i * header.card_stride;
    Store(base, card + offsetof(PolicyCard, limit_bytes), cards[i].limit_bytes);
    Store(base, card + offsetof(PolicyCard, compute_percent), cards[i].compute_percent);
    Store(base, card + offsetof(PolicyCard, priority), cards[i].priority);
  }
  auto* generation = reinterpret_cast<std::uint64_t*>(base + offsetof(PolicyHeader, generation));
  std::atomic_ref<std::uint64_t>(*generation).fetch_add(1, std::memory_order_acq_rel);
  // Waiters sleep on the low half: the first four bytes on a little-endian machine.
  syscall(SYS_futex, generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// A function of its own, with nothing in it that a longjmp would have to restore.
[[gnu::noinline]] bool StoreUnlessTruncated(char* base, const PolicyHeader& header,
                                            const std::vector<PolicyCardChange>& cards) {
  BusErrorGuard guard;
  if (sigsetjmp(g_bus_return, 1) != 0) return false;
  StoreChanges(base, header, cards);
  return true;
}

}  // namespace

Status CreatePolicy(const std::string& path, const PolicyText& text, mode_t mode) {
  if (text.cards.size() != text.slice.cards.size() || text.cards.empty() ||
      text.cards.size() > contract::kMaxCards) {
    return Fail(Code::kInvalidArgument,
                path + ": a slice has 1 to " + std::to_string(contract::kMaxCards) + " cards");
  }
  auto file = std::make_unique<PolicyFile>();
  PolicyHeader& header = file->header;
  header.magic = contract::kPolicyMagic;
  header.layout = contract::kPolicyLayout;
  header.file_bytes = sizeof(PolicyFile);
  header.cards_offset = offsetof(PolicyFile, cards);
  header.card_stride = sizeof(PolicyCard);
  header.card_count = static_cast<std::uint32_t>(text.cards.size());
  header.gates_offset = offsetof(PolicyFile, gates);
  header.gate_stride = sizeof(PolicyGate);
  header.generation = 1;
  header.core_policy = static_cast<std::uint32_t>(contract::CorePolicy::kDefault);
  header.bypass_action = static_cast<std::uint32_t>(text.bypass);
  CopyText(header.slice_id, text.slice.id);
  CopyText(header.slice_name, text.slice.name);
  for (std::size_t i = 0; i < text.cards.size(); ++i) {
    const model::Card& card = text.cards[i];
    PolicyCard& out = file->cards[i];
    std::copy(card.uuid.bytes.begin(), card.uuid.bytes.end(), out.uuid);
    out.limit_bytes = text.slice.cards[i].memory_bytes;
    out.ceiling_bytes = card.memory_bytes;
    out.physical_bytes = card.memory_bytes;
    out.compute_percent = ComputePercent(text.slice.cards[i].cores);
    out.priority = static_cast<std::uint32_t>(text.slice.priority);
    out.flags = card.uuid.is_mig ? static_cast<std::uint32_t>(contract::kCardIsMig) : 0u;
    out.pci_domain = card.pci_domain;
    out.pci_bus = card.pci_bus;
    out.pci_device = card.pci_device;
    out.context_bytes = card.context_bytes;
  }
  std::string_view bytes(reinterpret_cast<const char*>(file.get()), sizeof(PolicyFile));
  return base::CreateWholeFile(path, bytes, sizeof(PolicyFile), mode);
}

Result<PolicyView> ReadPolicy(const base::Folder& slice) {
  Result<std::string> bytes = slice.Read(contract::kPolicyFile, kMostPolicyBytes);
  if (!bytes) return Fail(bytes.error());
  return PolicyFromBytes(slice.path() + "/" + contract::kPolicyFile, *bytes);
}

Result<PolicyView> ReadPolicy(const std::string& path) {
  Result<std::string> bytes = base::ReadFile(path, kMostPolicyBytes);
  if (!bytes) return Fail(bytes.error());
  return PolicyFromBytes(path, *bytes);
}

Result<PolicyView> PolicyFromBytes(const std::string& path, const std::string& bytes) {
  Result<PolicyHeader> header = CheckedHeader(path, bytes);
  if (!header) return Fail(header.error());
  PolicyView view;
  view.slice_id = TextOf(header->slice_id);
  view.slice_name = TextOf(header->slice_name);
  view.flags = header->flags;
  view.core_policy = header->core_policy;
  view.bypass_action = header->bypass_action;
  view.generation = header->generation;
  view.heartbeat_ns = header->heartbeat_ns;
  for (std::uint32_t i = 0; i < header->card_count; ++i) {
    auto card = At<PolicyCard>(bytes, header->cards_offset + std::size_t{i} * header->card_stride);
    auto gate = At<PolicyGate>(bytes, header->gates_offset + std::size_t{i} * header->gate_stride);
    PolicyCardView out;
    std::copy(std::begin(card.uuid), std::end(card.uuid), out.uuid.bytes.begin());
    out.uuid.is_mig = (card.flags & contract::kCardIsMig) != 0;
    out.limit_bytes = card.limit_bytes;
    out.ceiling_bytes = card.ceiling_bytes;
    out.physical_bytes = card.physical_bytes;
    out.compute_percent = card.compute_percent;
    out.priority = card.priority;
    out.gate_open = gate.word == 0;
    view.cards.push_back(out);
  }
  return view;
}

Status ChangePolicy(const base::Folder& slice, const std::vector<PolicyCardChange>& cards) {
  const std::string path = slice.path() + "/" + contract::kPolicyFile;
  const Result<base::Fd> fd = slice.OpenFile(contract::kPolicyFile, O_RDWR);
  if (!fd) return Fail(fd.error());
  Result<std::string> bytes = base::ReadDescriptor(fd->get(), path, kMostPolicyBytes);
  if (!bytes) return Fail(bytes.error());
  Result<PolicyHeader> header = CheckedHeader(path, *bytes);
  if (!header) return Fail(header.error());
  if (cards.size() != header->card_count) {
    return Fail(Code::kInvalidArgument, path + ": has " + std::to_string(header->card_count) +
                                            " cards, not " + std::to_string(cards.size()));
  }
  void* base = mmap(nullptr, header->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (base == MAP_FAILED) return FailErrno(path, errno);
  const bool stored = StoreUnlessTruncated(static_cast<char*>(base), *header, cards);
  munmap(base, header->file_bytes);
  if (!stored) return Fail(Code::kDataLoss, path + ": was truncated while it was changed");
  return {};
}

std::uint32_t ComputePercent(std::uint32_t cores) { return cores == 0 ? 100 : cores; }

}  // namespace tessera::node
