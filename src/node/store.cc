#include "node/store.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <tuple>

#include "base/files.h"
#include "base/plain_text.h"
#include "node/liveness.h"
#include "node/slice_files.h"
#include "node/slice_record.h"

namespace tessera::node {
namespace {

constexpr std::size_t kMostRecordBytes = 64 << 10;
constexpr std::size_t kMostSlices = 4096;  // more directories than that are somebody's mistake
// Unfinished and dying directories: the prefix, then the pid and start time of who is at it.
constexpr char kNewPrefix[] = ".new.";
constexpr char kDeadPrefix[] = ".dead.";

std::string SlicesOf(const StateRoot& root) { return root.path + "/slices"; }
std::string LockOf(const StateRoot& root) { return root.path + "/lock"; }

std::string RandomId() {
  std::uint8_t bytes[8] = {};
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return "";
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (std::uint8_t byte : bytes) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

std::string WorkName(const char* prefix, const std::string& id) {
  base::ProcessIdentity self = base::OwnIdentity();
  return prefix + std::to_string(self.pid) + "." + std::to_string(self.start_ticks) + "." + id;
}

// True for a work name whose maker is gone.
bool IsAbandoned(const std::string& name) {
  for (std::string_view prefix : {std::string_view(kNewPrefix), std::string_view(kDeadPrefix)}) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    base::ProcessIdentity maker;
    const char* at = name.data() + prefix.size();
    const char* end = name.data() + name.size();
    auto pid = std::from_chars(at, end, maker.pid);
    if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != '.') return false;
    auto start = std::from_chars(pid.ptr + 1, end, maker.start_ticks);
    if (start.ec != std::errc()) return false;
    return !base::Alive(maker);
  }
  return false;
}

// Removes a slice so that no half-removed one is ever seen under its name.
Status RemoveSlice(const std::string& directory) {
  std::size_t slash = directory.rfind('/');
  std::string dying =
      directory.substr(0, slash + 1) + WorkName(kDeadPrefix, directory.substr(slash + 1));
  if (rename(directory.c_str(), dying.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return FailErrno(directory, errno);
  }
  return base::RemoveTree(dying);
}

Result<SliceRecord> ReadSlice(const std::string& directory, const std::string& id) {
  struct stat info{};
  if (lstat(directory.c_str(), &info) != 0) return FailErrno(directory, errno);
  if (!S_ISDIR(info.st_mode)) return Fail(Code::kDataLoss, "not a directory");
  Result<std::string> text = base::ReadFile(directory + "/" + kRecordFile, kMostRecordBytes);
  if (!text) return Fail(text.error());
  Result<SliceRecord> record = ParseRecord(*text);
  if (!record) return FailIn(kRecordFile, record.error());
  if (record->slice.id != id) return Fail(Code::kDataLoss, "slice.json names another slice");
  record->directory = directory;
  record->owner = info.st_uid;
  Result<PolicyView> policy = ReadPolicy(directory + "/" + contract::kPolicyFile);
  if (!policy) return Fail(policy.error());
  if (policy->cards.size() != record->slice.cards.size())
    return Fail(Code::kDataLoss, "slice.json and policy disagree");
  // The policy is what the fence obeys: the promise is never less than that.
  for (std::size_t i = 0; i < policy->cards.size(); ++i) {
    if (policy->cards[i].uuid != record->slice.cards[i].uuid) {
      return Fail(Code::kDataLoss, "slice.json and policy name different cards");
    }
    std::uint64_t& promised = record->slice.cards[i].memory_bytes;
    promised = std::max(promised, policy->cards[i].limit_bytes);
  }
  return record;
}

placement::Promises PromisesOf(const Inventory& inventory) {
  placement::Promises promises;
  for (const SliceRecord& record : inventory.live) promises.push_back(record.slice);
  return promises;
}

// A promise that cannot be read may be any: nothing is promised beside it.
Status NothingBroken(const Inventory& inventory) {
  if (inventory.broken.empty()) return {};
  const Broken& broken = inventory.broken.front();
  return Fail(broken.error.code, "slice directory '" + broken.directory +
                                     "' cannot be read, so what it was promised is unknown: " +
                                     broken.error.message + "; end its programs and remove it");
}

Result<std::string> ChooseName(const Inventory& inventory, const NewSlice& wanted) {
  std::set<std::string> taken;
  for (const SliceRecord& record : inventory.live) {
    if (!wanted.request.name.empty() && record.slice.name == wanted.request.name) {
      return Fail(Code::kAlreadyExists,
                  "--name: '" + wanted.request.name + "' is taken by a live slice (pid " +
                      std::to_string(record.launcher.pid) + "); names are unique while they live");
    }
    taken.insert(record.slice.name);
  }
  if (!wanted.request.name.empty()) return wanted.request.name;
  std::string base_name = model::NameFromCommand(wanted.program);
  std::string name = base_name;
  for (std::size_t i = 2; taken.contains(name); ++i) name = base_name + "-" + std::to_string(i);
  return name;
}

// A disk without room is no card without room.
tl::unexpected<Error> Unwritten(const Error& error) {
  const Code code = error.code == Code::kResourceExhausted ? Code::kUnavailable : error.code;
  return Fail(code,
              "state directory: " + error.message +
                  (error.code == Code::kResourceExhausted ? "; a slice takes 6 MiB there" : ""));
}

const model::Card* FindCard(const model::Node& node, const model::Uuid& uuid) {
  for (const model::Card& card : node.cards) {
    if (card.uuid == uuid) return &card;
  }
  return nullptr;
}

// Files of a slice whose directory stands already.
Status FillDirectory(const std::string& directory, const PolicyText& policy,
                     const SliceRecord& record) {
  if (Status made = CreatePolicy(directory + "/" + contract::kPolicyFile, policy, 0644); !made)
    return made;
  std::string ledger_folder = directory;
  mode_t ledger_mode = 0644;
  if (geteuid() == 0) {
    // Inside, `su` makes processes of other users that must write the ledger; outside, no other
    // user may.
    ledger_folder += std::string("/") + kGuardedFolder;
    ledger_mode = 0666;
    if (Status made = base::MakeDirectory(ledger_folder, 0700); !made) return made;
  }
  if (Status made = CreateLedger(ledger_folder + "/" + contract::kLedgerFile, ledger_mode); !made)
    return made;
  return base::WriteFileAtomic(directory + "/" + kRecordFile, RecordText(record), 0644);
}

}  // namespace

Store::Store(StateRoot root, base::Clock& clock) : root_(std::move(root)), clock_(&clock) {}

Result<Inventory> Store::Read() const {
  Result<std::vector<std::string>> names = base::ListDirectory(SlicesOf(root_));
  if (!names) {
    const bool gone = names.error().code == Code::kNotFound;
    return Fail(gone ? Code::kNotFound : Code::kUnavailable, names.error().message);
  }
  if (names->size() > kMostSlices) {
    return Fail(Code::kUnavailable,
                SlicesOf(root_) + ": more than " + std::to_string(kMostSlices) + " entries");
  }
  Inventory inventory;
  LivenessProbe probe;
  for (const std::string& name : *names) {
    if (name[0] == '.') continue;
    std::string directory = SlicesOf(root_) + "/" + name;
    Result<SliceRecord> record = ReadSlice(directory, name);
    if (!record) {
      // Reaped between the listing and here, or never whole.
      if (base::IsDirectory(directory) || record.error().code != Code::kNotFound) {
        inventory.broken.push_back({directory, record.error()});
      }
      continue;
    }
    record->live = probe.Lives(*record);
    (record->live ? inventory.live : inventory.dead).push_back(std::move(*record));
  }
  std::stable_sort(
      inventory.live.begin(), inventory.live.end(), [](const SliceRecord& a, const SliceRecord& b) {
        return std::tie(a.created_s, a.created_ns) < std::tie(b.created_s, b.created_ns);
      });
  return inventory;
}

Result<SliceRecord> Store::Find(const std::string& name) const {
  Result<Inventory> inventory = Read();
  if (!inventory) return Fail(inventory.error());
  std::string names;
  for (const SliceRecord& record : inventory->live) {
    if (record.slice.name == name || record.slice.id == name) return record;
    names += (names.empty() ? "" : ", ") + record.slice.name;
  }
  // It may be the one that cannot be read.
  if (Status whole = NothingBroken(*inventory); !whole) return Fail(whole.error());
  return Fail(Code::kNotFound,
              "NAME: '" + base::Shown(name) + "' is no live slice; " +
                  (names.empty() ? std::string("there is none") : "live: " + names));
}

void Store::Reap() {
  Result<Inventory> inventory = Read();
  if (!inventory) return;
  for (const SliceRecord& record : inventory->dead) {
    if (Status removed = RemoveSlice(record.directory); !removed)
      continue;  // another user's: theirs to remove
  }
  Result<std::vector<std::string>> names = base::ListDirectory(SlicesOf(root_));
  if (!names) return;
  for (const std::string& name : *names) {
    if (!IsAbandoned(name)) continue;
    if (Status removed = base::RemoveTree(SlicesOf(root_) + "/" + name); !removed) continue;
  }
}

Result<placement::Placement> Store::TryPlace(const model::Node& node,
                                             const NewSlice& wanted) const {
  Result<Inventory> inventory = Read();
  if (!inventory) return Fail(inventory.error());
  if (Status whole = NothingBroken(*inventory); !whole) return Fail(whole.error());
  if (Result<std::string> name = ChooseName(*inventory, wanted); !name) return Fail(name.error());
  return placement::Place(node, PromisesOf(*inventory), wanted.request);
}

std::uint64_t SliceRecord::MostBytes(std::size_t index) const {
  const std::uint64_t now = slice.cards[index].memory_bytes;
  return index < most_bytes.size() ? std::max(most_bytes[index], now) : now;
}

Result<SliceRecord> Store::Commit(const model::Node& node, const NewSlice& wanted) {
  Result<base::FileLock> lock = base::FileLock::Acquire(LockOf(root_), kLockWaitNs, *clock_);
  if (!lock) return FailIn("state directory", lock.error());
  Reap();
  Result<Inventory> inventory = Read();
  if (!inventory) return Fail(inventory.error());
  if (Status whole = NothingBroken(*inventory); !whole) return Fail(whole.error());
  Result<std::string> name = ChooseName(*inventory, wanted);
  if (!name) return Fail(name.error());
  placement::Placement placement = placement::Place(node, PromisesOf(*inventory), wanted.request);
  if (placement.chosen.empty()) {
    return Fail(placement.asked_wrongly ? Code::kInvalidArgument : Code::kResourceExhausted,
                placement.refusal);
  }

  SliceRecord record;
  record.slice = {RandomId(), *name, placement.chosen, wanted.request.priority};
  if (record.slice.id.empty()) return Fail(Code::kInternal, "no random numbers from the kernel");
  record.command = wanted.command;
  record.owner = geteuid();
  record.created_s = clock_->WallSeconds();
  record.created_ns = clock_->NowNs();
  record.launcher = base::OwnIdentity();
  if (record.launcher.start_ticks == 0) {
    return Fail(Code::kUnavailable,
                "/proc: does not show this process, and without that nobody can tell who lives");
  }
  record.pid_namespace = base::NamespaceInode(getpid(), "pid");
  record.boot_id = BootId();
  record.bypass = wanted.bypass;
  record.live = true;
  PolicyText policy{record.slice, {}, wanted.bypass};
  for (const model::SliceCard& chosen : placement.chosen)
    policy.cards.push_back(*FindCard(node, chosen.uuid));

  std::string making = SlicesOf(root_) + "/" + WorkName(kNewPrefix, record.slice.id);
  record.directory = SlicesOf(root_) + "/" + record.slice.id;
  Status made = base::MakeDirectory(making, 0755);
  if (made) made = FillDirectory(making, policy, record);
  if (made && rename(making.c_str(), record.directory.c_str()) != 0)
    made = FailErrno(record.directory, errno);
  if (!made) {
    if (Status removed = base::RemoveTree(making); !removed) return Unwritten(removed.error());
    return Unwritten(made.error());
  }
  return record;
}

Status Store::Update(const SliceRecord& record) {
  return base::WriteFileAtomic(record.directory + "/" + kRecordFile, RecordText(record), 0644);
}

Status Store::Remove(const SliceRecord& record) { return RemoveSlice(record.directory); }

Result<Changed> Store::SetLimits(const model::Node& node, const std::string& name,
                                 const Change& change) {
  Result<base::FileLock> lock = base::FileLock::Acquire(LockOf(root_), kLockWaitNs, *clock_);
  if (!lock) return FailIn("state directory", lock.error());
  Result<SliceRecord> found = Find(name);
  if (!found) return Fail(found.error());
  if (geteuid() != 0 && geteuid() != found->owner) {
    return Fail(Code::kPermissionDenied, "NAME: '" + base::Shown(name) + "' belongs to user " +
                                             std::to_string(found->owner) +
                                             "; only that user and root may change it");
  }
  Result<Inventory> inventory = Read();
  if (!inventory) return Fail(inventory.error());
  if (Status whole = NothingBroken(*inventory); !whole) return Fail(whole.error());

  Changed changed{*found, *found, {}};
  model::Slice& after = changed.after.slice;
  after.priority = change.priority.value_or(after.priority);
  std::vector<PolicyCardChange> policy;
  bool grows = false;
  std::vector<std::uint64_t> card_bytes;
  for (std::size_t i = 0; i < after.cards.size(); ++i) {
    const std::uint64_t most = found->MostBytes(i);
    changed.after.most_bytes.resize(after.cards.size());
    changed.after.most_bytes[i] = std::max(most, change.memory_bytes.value_or(most));
  }
  for (model::SliceCard& card : after.cards) {
    std::uint64_t memory = change.memory_bytes.value_or(card.memory_bytes);
    std::uint32_t cores = change.cores.value_or(card.cores);
    placement::CardVerdict verdict =
        placement::Resize(node, PromisesOf(*inventory), found->slice, card.uuid, memory, cores);
    // Giving back is always allowed, whatever others were promised meanwhile.
    bool shrinks = memory <= card.memory_bytes && cores <= card.cores && memory > 0 && cores > 0;
    if (!verdict.fits && !(shrinks && verdict.index >= 0)) {
      return Fail(memory > verdict.total_bytes && verdict.total_bytes > 0
                      ? Code::kInvalidArgument
                      : Code::kResourceExhausted,
                  "'" + found->slice.name + "' on card " + std::to_string(verdict.index) + ": " +
                      verdict.reason);
    }
    grows = grows || memory > card.memory_bytes;
    card.memory_bytes = memory;
    card.cores = cores;
    policy.push_back({memory, ComputePercent(cores), static_cast<std::uint32_t>(after.priority)});
    card_bytes.push_back(verdict.total_bytes);
  }
  // The promise is written before it is used and given back after: a crash between leaves it too
  // large, never too small.
  const std::string policy_path = found->directory + "/" + contract::kPolicyFile;
  Status done;
  if (grows) done = Update(changed.after);
  if (done) done = ChangePolicy(policy_path, policy);
  if (done && !grows) done = Update(changed.after);
  if (!done) return Unwritten(done.error());
  if (Result<LedgerView> ledger = ReadLedger(LedgerPath(found->directory), card_bytes)) {
    for (const LedgerCardView& card : ledger->cards) changed.held_bytes.push_back(card.held_bytes);
  }
  return changed;
}

}  // namespace tessera::node
