#include "node/liveness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"
#include "contract/names.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"
#include "node/slice_record.h"

namespace tessera::node {
namespace {

// The value of one variable in the text of /proc/PID/environ.
std::string VariableOf(const std::string& environment, const std::string& name) {
  std::string start = name + "=";
  std::size_t at =
      environment.compare(0, start.size(), start) == 0 ? 0 : environment.find('\0' + start);
  if (at == std::string::npos) return "";
  if (environment[at] == '\0') ++at;
  return std::string(environment.c_str() + at + start.size());
}

// Asked where a process' memory map may not be seen: is it at least one of the owner's user?
bool MayBeOf(uid_t owner, pid_t pid) {
  struct stat info{};
  if (owner == 0) return true;
  return stat(("/proc/" + std::to_string(pid)).c_str(), &info) == 0 && info.st_uid == owner;
}

// slice.json is its owner's text and may name anybody's process: one that is known to be of another
// user is none of the slice. What root wrote is believed, also when its program went on as a user.
bool IsOf(uid_t owner, pid_t pid) {
  return owner == 0 || base::RealUser(pid).value_or(owner) == owner;
}

}  // namespace

bool LivenessProbe::Lives(const SliceRecord& record) {
  if (!boot_id_) {
    boot_id_ = BootId();
    pid_namespace_ = base::NamespaceInode(getpid(), "pid");
  }
  if (record.boot_id != *boot_id_) return false;
  // Pids of another pid namespace mean nothing here: what was promised there stays promised while
  // that namespace lives.
  if (record.pid_namespace != pid_namespace_) return PidNamespaceLives(record);
  if (base::Alive(record.launcher) && IsOf(record.owner, record.launcher.pid)) return true;
  if (!scanned_) Scan();
  if (NamespaceLives(record)) return true;
  if (EnvironmentNames(record)) return true;
  return LedgerLives(record);
}

bool LivenessProbe::NamespaceLives(const SliceRecord& record) const {
  if (record.mount_namespace == 0) return false;
  const auto found = policy_of_namespace_.find(record.mount_namespace);
  if (found == policy_of_namespace_.end()) return false;
  if (!found->second.readable) return true;
  const std::optional<Place> own = PlaceOfPolicy(record);
  if (!own) return true;
  // Whatever root of the slice has mounted over it.
  const std::vector<Place>& mounted = found->second.mounted;
  return found->second.place == own || std::ranges::find(mounted, *own) != mounted.end();
}

// Root in the machine's own pid namespace; for anybody else, unseen is not gone.
bool LivenessProbe::SeesAllProcesses() const {
  constexpr std::uint64_t kInitialPidNamespace =
      0xEFFFFFFC;  // PROC_PID_INIT_INO of linux/proc_ns.h
  return geteuid() == 0 && pid_namespace_ == kInitialPidNamespace;
}

bool LivenessProbe::PidNamespaceLives(const SliceRecord& record) {
  if (!SeesAllProcesses()) return true;
  if (!scanned_) Scan();
  const auto [first, last] = pids_of_namespace_.equal_range(record.pid_namespace);
  return std::any_of(first, last, [&](const auto& of) { return IsOf(record.owner, of.second); });
}

// A process with a root directory of its own may not see what the others of its namespace do: each
// of them is asked until one does.
void LivenessProbe::LookForPolicy(std::uint64_t inode, pid_t pid) {
  const auto known = policy_of_namespace_.find(inode);
  if (known == policy_of_namespace_.end()) {
    policy_of_namespace_.emplace(inode, PolicySeenBy(pid));
  } else if (known->second.readable && !known->second.place) {
    known->second = PolicySeenBy(pid);
  }
}

void LivenessProbe::Scan() {
  scanned_ = true;
  Result<std::vector<std::string>> names = base::ListDirectory("/proc");
  if (!names) return;
  const std::uint64_t own_namespace = base::NamespaceInode(getpid(), "mnt");
  for (const std::string& name : *names) {
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    const pid_t pid = std::atoi(name.c_str());
    if (pid == getpid()) continue;  // looks, and is of no slice: nested runs are refused
    pids_.push_back(pid);
    const std::uint64_t inode = base::NamespaceInode(pid, "mnt");
    if (inode != 0 && inode != own_namespace) LookForPolicy(inode, pid);
    pids_of_namespace_.emplace(base::NamespaceInode(pid, "pid"), pid);
  }
}

// Read only where a slice depends on it: the kernel reads an environment from the process' memory,
// page by page.
void LivenessProbe::ScanEnvironments() {
  scanned_environments_ = true;
  constexpr std::size_t kMostEnvironment = 4 << 20;
  for (const pid_t pid : pids_) {
    const Result<std::string> environment = memory_.Read(pid, "environ", kMostEnvironment);
    if (!environment) continue;
    if (std::string value = VariableOf(*environment, contract::kEnvSliceDir); !value.empty()) {
      if (const std::optional<uid_t> user = base::RealUser(pid))
        slice_variables_.insert({*user, value});
    }
  }
}

bool LivenessProbe::EnvironmentNames(const SliceRecord& record) {
  if (record.fencing != Fencing::kEnvironment) return false;
  if (!scanned_environments_) ScanEnvironments();
  return slice_variables_.contains({record.owner, record.directory});
}

// The inodes of all files named "ledger" that are mapped there; none: may not be seen.
std::optional<std::set<std::uint64_t>> LivenessProbe::ReadLedgersMapped(pid_t pid) {
  constexpr std::size_t kMostMaps = 16 << 20;
  const Result<std::string> maps = memory_.Read(pid, "maps", kMostMaps);
  if (!maps || maps->empty()) return std::nullopt;
  const std::string name = std::string("/") + contract::kLedgerFile;
  std::set<std::uint64_t> inodes;
  for (std::size_t start = 0; start < maps->size();) {
    const std::size_t end = std::min(maps->find('\n', start), maps->size());
    std::string_view line = std::string_view(*maps).substr(start, end - start);
    start = end + 1;
    if (line.find(name) == line.npos) continue;
    for (int word = 0; word < 4 && !line.empty(); ++word)
      line.remove_prefix(std::min(line.find(' '), line.size() - 1) + 1);
    std::uint64_t inode = 0;
    std::from_chars(line.data(), line.data() + line.size(), inode);
    inodes.insert(inode);
  }
  return inodes;
}

// Whether the ledger is mapped there; none: may not be seen, or the slices of that user took too
// long already. Each process is read once, however many slices name it.
std::optional<bool> LivenessProbe::MapsFile(uid_t owner, pid_t pid, std::uint64_t inode) {
  constexpr std::int64_t kMostNs = 500'000'000;
  const auto [known, is_new] = ledgers_mapped_.try_emplace(pid);
  if (is_new) {
    std::int64_t& took_ns = maps_took_ns_[owner];
    if (took_ns < kMostNs) {
      const std::int64_t begun = base::RealClock().NowNs();
      known->second = ReadLedgersMapped(pid);
      took_ns += base::RealClock().NowNs() - begun;
    } else {
      ledgers_mapped_.erase(known);
      return std::nullopt;
    }
  }
  if (!known->second) return std::nullopt;
  return known->second->contains(inode);
}

// A slot is the tenant's text and may name anybody's process: only one that has the ledger mapped
// keeps the promise.
bool LivenessProbe::LedgerLives(const SliceRecord& record) {
  std::vector<std::uint64_t> card_bytes(record.slice.cards.size(), model::kMaxMemory);
  const Result<base::Folder> slice = OpenSlice(record);
  if (!slice) return false;
  const Result<LedgerView> ledger = ReadLedger(*slice, card_bytes);
  const Result<base::Fd> file = OpenLedger(*slice, O_PATH);
  struct stat info{};
  if (!ledger || !file || fstat(file->get(), &info) != 0) return false;
  for (const LedgerSlotView& slot : ledger->slots) {
    if (!slot.live) continue;
    // What is older than the slice is not of it, whether it may be looked at or not.
    if (slot.owner.start_ticks < record.launcher.start_ticks) continue;
    if (slot.pid_here == 0) {
      if (!SeesAllProcesses()) return true;
      continue;
    }
    if (MapsFile(record.owner, slot.pid_here, info.st_ino)
            .value_or(MayBeOf(record.owner, slot.pid_here)))
      return true;
  }
  return false;
}

}  // namespace tessera::node
