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
#include "contract/policy_view.h"
#include "node/layout_status.h"
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

// As every reader of a policy checks it: contract/policy_view.h.
Result<PolicyHeader> CheckedHeader(const std::string& path, const std::string& bytes) {
  PolicyHeader header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  if (Status sound = LayoutStatus(path, contract::CheckPolicyHeader(header, bytes.size())); !sound)
    return Fail(sound.error());
  for (std::uint32_t i = 0; i < header.card_count; ++i) {
    const auto card =
        At<PolicyCard>(bytes, header.cards_offset + std::size_t{i} * header.card_stride);
    if (Status sound = LayoutStatus(path, contract::CheckPolicyCard(card)); !sound)
      return Fail(sound.error());
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
  // A card without a UUID, say: the fence would refuse it, and so would whoever adds promises up.
  if (Result<PolicyHeader> sound = CheckedHeader(path, std::string(bytes)); !sound)
    return Fail(sound.error());
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
