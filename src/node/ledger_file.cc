#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/files.h"
#include "contract/ledger_view.h"
#include "node/layout_status.h"
#include "node/slice_files.h"

namespace tessera::node {
namespace {

using contract::LedgerCard;
using contract::LedgerFile;
using contract::LedgerHeader;
using contract::LedgerSlot;

// A newer fence may have more slots or longer ones; what is longer than this is not read.
constexpr std::size_t kMostLedgerBytes = 32u << 20;
constexpr std::uint64_t kPidMask =
    (std::uint64_t{1} << (contract::kOwnerStartShift - contract::kOwnerPidShift)) - 1;
constexpr std::uint64_t kStateMask = (std::uint64_t{1} << contract::kOwnerPidShift) - 1;
constexpr std::uint64_t kStartMask = (std::uint64_t{1} << (64 - contract::kOwnerStartShift)) - 1;

// What a file holds without its holes: a tenant makes those for nothing, and of any length.
struct Sparse {
  std::size_t size = 0;
  std::map<std::size_t, std::string> runs;  // by where they begin; they do not overlap
};

// The same bytes as in the whole file, zero in holes.
template <typename T>
T At(const Sparse& file, std::size_t offset) {
  T value{};
  auto run = file.runs.upper_bound(offset);
  if (run != file.runs.begin()) --run;
  for (; run != file.runs.end() && run->first < offset + sizeof value; ++run) {
    const std::size_t from = std::max(offset, run->first);
    const std::size_t to = std::min(offset + sizeof value, run->first + run->second.size());
    if (from >= to) continue;
    std::memcpy(reinterpret_cast<char*>(&value) + (from - offset),
                run->second.data() + (from - run->first), to - from);
  }
  return value;
}

// Text that a tenant wrote, safe for a terminal.
std::string Printable(const char* text, std::size_t size) {
  std::string out(text, strnlen(text, size));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return out;
}

// From where to where the file holds data at or behind `at`; empty: nowhere before `size`.
std::pair<std::size_t, std::size_t> DataRun(int fd, std::size_t at, std::size_t size) {
  const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? std::pair{size, size} : std::pair{at, size};
  const off_t hole = lseek(fd, data, SEEK_HOLE);
  const auto begin = std::min(static_cast<std::size_t>(data), size);
  const auto end = hole <= data ? size : std::min(static_cast<std::size_t>(hole), size);
  return {begin, end};
}

// With pread: a file that shrinks under us gives a short copy, never a SIGBUS. What its tenant has
// put behind its end is not read, only seen to be there.
Result<Sparse> Copy(int fd, const std::string& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return FailErrno(path, errno);
  LedgerHeader header{};
  const ssize_t head = pread(fd, &header, sizeof header, 0);
  if (head < 0) return FailErrno(path, errno);
  Sparse copy;
  copy.size = std::min<std::size_t>(static_cast<std::size_t>(info.st_size), kMostLedgerBytes);
  if (head == sizeof header && header.magic == contract::kLedgerMagic &&
      header.file_bytes >= sizeof(LedgerFile) && header.file_bytes < copy.size)
    copy.size = header.file_bytes + 1;
  for (std::size_t at = 0; at < copy.size;) {
    const auto [begin, end] = DataRun(fd, at, copy.size);
    at = end;
    if (begin == end) break;
    std::string bytes(end - begin, '\0');
    std::size_t have = 0;
    while (have < bytes.size()) {
      const ssize_t got =
          pread(fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(begin + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FailErrno(path, errno);
      if (got == 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    copy.runs.emplace(begin, std::move(bytes));
  }
  if (fstat(fd, &info) != 0) return FailErrno(path, errno);
  copy.size = std::min(copy.size, static_cast<std::size_t>(info.st_size));  // cut meanwhile
  return copy;
}

// As every reader of a ledger checks it: contract/ledger_view.h.
Result<LedgerHeader> CheckedHeader(const std::string& path, const Sparse& file) {
  const auto header = At<LedgerHeader>(file, 0);
  if (Status sound = LayoutStatus(path, contract::CheckLedger(header, file.size)); !sound)
    return Fail(sound.error());
  return header;
}

// pid as seen in another pid namespace -> pid here, for the processes that we may look at.
class NamespacePids {
 public:
  std::optional<pid_t> Find(std::uint64_t pid_namespace, pid_t inner) {
    if (!filled_) Fill();
    auto found = pids_.find({pid_namespace, inner});
    if (found == pids_.end()) return std::nullopt;
    return found->second;
  }

 private:
  void Fill() {
    filled_ = true;
    Result<std::vector<std::string>> names = base::ListDirectory("/proc");
    if (!names) return;
    for (const std::string& name : *names) {
      if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
      Result<std::string> status = base::ReadKernelFile("/proc/" + name + "/status", 65536);
      if (!status) continue;
      std::size_t line = status->find("\nNSpid:");
      if (line == std::string::npos) continue;
      std::string pids = status->substr(line + 7, status->find('\n', line + 1) - line - 7);
      std::size_t last = pids.find_last_of(" \t");
      pid_t outer = std::atoi(name.c_str());
      pid_t inner = std::atoi(pids.c_str() + (last == std::string::npos ? 0 : last + 1));
      pids_[{base::NamespaceInode(outer, "pid"), inner}] = outer;
    }
  }

  bool filled_ = false;
  std::map<std::pair<std::uint64_t, pid_t>, pid_t> pids_;
};

class Reader {
 public:
  Reader(const Sparse& file, const LedgerHeader& header,
         const std::vector<std::uint64_t>& card_bytes)
      : file_(file),
        header_(header),
        card_bytes_(card_bytes),
        own_pid_namespace_(base::NamespaceInode(getpid(), "pid")),
        own_time_namespace_(base::NamespaceInode(getpid(), "time")) {}

  LedgerView Read() {
    view_.slots_refused = header_.slots_refused;
    if (file_.size != header_.file_bytes || header_.file_bytes < sizeof(LedgerFile)) {
      Remark("the ledger's length was changed by its tenant");
    }
    ReadCards();
    ReadSlots();
    for (std::size_t c = 0; c < view_.cards.size(); ++c) {
      LedgerCardView& card = view_.cards[c];
      if (card.held_bytes > card_bytes_[c]) {
        Remark("card " + std::to_string(c) + " of the slice: " + model::MibText(card.held_bytes) +
               " held is more than the card has: the ledger is forged or damaged");
        card.held_bytes = card_bytes_[c];
      }
      card.total_bytes = std::min(card.total_bytes, card_bytes_[c]);
      card.peak_bytes = std::min(card.peak_bytes, card_bytes_[c]);
    }
    if (view_.slots_refused > 0) {
      Remark(std::to_string(view_.slots_refused) +
             " processes found no free slot and get no card memory");
    }
    return std::move(view_);
  }

 private:
  void Remark(std::string text) {
    constexpr std::size_t kMostRemarks = 16;  // a damaged file could give thousands
    if (view_.remarks.size() < kMostRemarks) view_.remarks.push_back(std::move(text));
  }

  void ReadCards() {
    for (std::size_t c = 0; c < card_bytes_.size(); ++c) {
      LedgerCardView out;
      if (c < header_.card_count) {
        auto card = At<LedgerCard>(file_, header_.cards_offset + c * header_.card_stride);
        out.total_bytes = card.total >> contract::kBytesShift;
        out.peak_bytes = card.peak_bytes;
        out.denied_count = card.denied_count;
        out.denied_bytes = card.denied_bytes;
        out.recount_wanted = card.recount_wanted != 0;
      }
      view_.cards.push_back(out);
    }
  }

  // Whether the process that claimed the slot lives, and is still the program that claimed it.
  bool SlotLives(LedgerSlotView& slot) {
    pid_t pid = slot.owner.pid;
    if (slot.pid_namespace != own_pid_namespace_) {
      std::optional<pid_t> here = pids_.Find(slot.pid_namespace, pid);
      if (!here && slot.host_pid != 0) here = static_cast<pid_t>(slot.host_pid);
      if (!here) return true;  // cannot be seen from here: what it holds counts
      pid = *here;
    }
    slot.pid_here = pid;
    base::ProcessIdentity identity{pid, slot.owner.start_ticks};
    Result<base::ProcessStat> stat = base::ReadProcessStat(pid);
    if (!stat) return base::IsHidden(pid);
    if ((stat->identity.start_ticks & kStartMask) != identity.start_ticks) {
      // In another time namespace all processes have other start times.
      if (slot.time_namespace == 0 || slot.time_namespace == own_time_namespace_ ||
          base::NamespaceInode(pid, "time") != slot.time_namespace)
        return false;
      slot.owner.start_ticks = stat->identity.start_ticks;
    }
    bool ended = stat->state == 'Z' || stat->state == 'X';
    if (ended && stat->threads <= 1) return false;
    return stat->stack_start == 0 || slot.stack_start == 0 || stat->stack_start == slot.stack_start;
  }

  // Those that stand in a hole are free.
  void ReadSlots() {
    std::size_t next = 0;
    for (const auto& [begin, bytes] : file_.runs) {
      const std::size_t end = begin + bytes.size();
      if (end <= header_.slots_offset) continue;
      if (begin > header_.slots_offset)
        next = std::max(next, (begin - header_.slots_offset) / header_.slot_stride);
      for (; next < header_.slot_count; ++next) {
        if (header_.slots_offset + next * header_.slot_stride >= end) break;
        ReadSlot(static_cast<std::uint32_t>(next));
      }
    }
  }

  void ReadSlot(std::uint32_t index) {
    std::size_t offset = header_.slots_offset + std::size_t{index} * header_.slot_stride;
    auto owner = At<std::uint64_t>(file_, offset);
    if (owner == 0) return;
    auto slot = At<LedgerSlot>(file_, offset);
    LedgerSlotView out;
    out.index = index;
    out.owner.pid = static_cast<pid_t>(owner >> contract::kOwnerPidShift & kPidMask);
    out.owner.start_ticks = owner >> contract::kOwnerStartShift;
    out.pid_namespace = slot.pid_namespace;
    out.time_namespace = slot.time_namespace;
    out.stack_start = slot.stack_start;
    out.host_pid = slot.host_pid;
    out.hooks_active = slot.hooks_active;
    out.build_id = Printable(slot.build_id, sizeof slot.build_id);
    out.command = Printable(slot.command, sizeof slot.command);
    out.held.resize(view_.cards.size());
    for (std::size_t c = 0; c < view_.cards.size(); ++c) {
      for (std::uint64_t word : slot.cards[c].held) {
        out.held_by_kind.push_back(word >> contract::kBytesShift);
        out.held[c] += word >> contract::kBytesShift;
      }
    }
    out.live = (owner & kStateMask) == static_cast<std::uint64_t>(contract::SlotState::kLive) &&
               SlotLives(out);
    if (out.live) {
      for (std::size_t c = 0; c < view_.cards.size(); ++c) view_.cards[c].held_bytes += out.held[c];
    }
    view_.slots.push_back(std::move(out));
  }

  const Sparse& file_;
  const LedgerHeader& header_;
  const std::vector<std::uint64_t>& card_bytes_;
  std::uint64_t own_pid_namespace_;
  std::uint64_t own_time_namespace_;
  NamespacePids pids_;
  LedgerView view_;
};

Result<LedgerView> LedgerFrom(const std::string& path, const Sparse& file,
                              const std::vector<std::uint64_t>& card_bytes) {
  if (card_bytes.empty() || card_bytes.size() > contract::kMaxCards) {
    return Fail(Code::kInvalidArgument,
                path + ": a slice has 1 to " + std::to_string(contract::kMaxCards) + " cards");
  }
  Result<LedgerHeader> header = CheckedHeader(path, file);
  if (!header) return Fail(header.error());
  return Reader(file, *header, card_bytes).Read();
}

}  // namespace

Status CreateLedger(const std::string& path, mode_t mode) {
  LedgerHeader header{};
  header.magic = contract::kLedgerMagic;
  header.layout = contract::kLedgerLayout;
  header.file_bytes = sizeof(LedgerFile);
  header.cards_offset = offsetof(LedgerFile, cards);
  header.card_stride = sizeof(LedgerCard);
  header.card_count = contract::kMaxCards;
  header.slots_offset = offsetof(LedgerFile, slots);
  header.slot_stride = sizeof(LedgerSlot);
  header.slot_count = contract::kMaxSlots;
  header.kinds = contract::kKinds;
  std::string_view bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return base::CreateWholeFile(path, bytes, sizeof(LedgerFile), mode);
}

Result<base::Fd> OpenLedger(const base::Folder& slice, int flags) {
  if (!slice.HasSub(kGuardedFolder)) return slice.OpenFile(contract::kLedgerFile, flags);
  const Result<base::Folder> guarded = slice.Sub(kGuardedFolder);
  if (!guarded) return Fail(guarded.error());
  return guarded->OpenFile(contract::kLedgerFile, flags);
}

Result<LedgerView> ReadLedger(const base::Folder& slice,
                              const std::vector<std::uint64_t>& card_bytes) {
  const std::string path = slice.path() + "/" + contract::kLedgerFile;
  const Result<base::Fd> fd = OpenLedger(slice, O_RDONLY);
  if (!fd) return Fail(fd.error());
  const Result<Sparse> file = Copy(fd->get(), path);
  if (!file) return Fail(file.error());
  return LedgerFrom(path, *file, card_bytes);
}

Result<LedgerView> LedgerFromBytes(const std::string& path, const std::string& bytes,
                                   const std::vector<std::uint64_t>& card_bytes) {
  return LedgerFrom(path, {bytes.size(), {{0, bytes}}}, card_bytes);
}

}  // namespace tessera::node
