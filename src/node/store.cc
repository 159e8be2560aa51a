#include "node/store.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/files.h"
#include "base/plain_text.h"
#include "node/liveness.h"
#include "node/slice_choice.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"
#include "node/slice_record.h"
#include "node/state_lock.h"

namespace tessera::node {
namespace {

// More directories of one user than that are a mistake or meant to be in the way: the rest is not
// looked at. By user, so that nobody keeps others from being seen.
constexpr std::size_t kMostSlices = 1024;
constexpr std::size_t kMostBroken = 8;  // of one user, told one by one

std::string SlicesOf(const StateRoot& root) { return root.path + "/slices"; }

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
    // Nobody keeps others from a name by taking it first.
    if (record.owner != geteuid()) continue;
    if (!wanted.request.name.empty() && record.slice.name == wanted.request.name) {
      return Fail(Code::kAlreadyExists,
                  "--name: '" + wanted.request.name + "' is taken by a live slice of yours (pid " +
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

// The entries of one user among the slices.
struct OfUser {
  std::size_t entries = 0, broken = 0;
};

// What Read leaves out of them.
std::vector<Error> NotTold(uid_t uid, const OfUser& user) {
  std::vector<Error> left;
  const std::string who = " of user " + std::to_string(uid);
  if (user.broken > kMostBroken) {
    left.push_back({Code::kDataLoss, std::to_string(user.broken - kMostBroken) + " more entries" +
                                         who + " cannot be read"});
  }
  if (user.entries > kMostSlices) {
    left.push_back({Code::kResourceExhausted, std::to_string(user.entries) + " entries" + who +
                                                  ", of which " + std::to_string(kMostSlices) +
                                                  " are looked at"});
  }
  return left;
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
  const Result<base::Folder> slices = OpenSlices(root_.path);
  const Result<std::vector<std::string>> names = slices ? slices->List() : Fail(slices.error());
  if (!names) {
    const bool gone = names.error().code == Code::kNotFound;
    return Fail(gone ? Code::kNotFound : Code::kUnavailable, names.error().message);
  }
  Inventory inventory;
  LivenessProbe probe;
  std::map<uid_t, OfUser> users;
  for (const std::string& name : *names) {
    if (name[0] == '.') continue;
    const std::optional<uid_t> owner = slices->OwnerOf(name);
    if (!owner) continue;  // reaped since the listing
    OfUser& user = users[*owner];
    if (++user.entries > kMostSlices) continue;
    Result<SliceRecord> record = ReadSlice(*slices, name);
    if (!record) {
      // Reaped between the listing and here, or never whole.
      if (!slices->HasSub(name) && record.error().code == Code::kNotFound) continue;
      if (++user.broken <= kMostBroken)
        inventory.broken.push_back({SlicesOf(root_) + "/" + name, record.error()});
      continue;
    }
    record->live = probe.Lives(*record);
    (record->live ? inventory.live : inventory.dead).push_back(std::move(*record));
  }
  for (const auto& [uid, user] : users) {
    for (Error& error : NotTold(uid, user))
      inventory.broken.push_back({SlicesOf(root_), std::move(error)});
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
  std::vector<const SliceRecord*> live;
  for (const SliceRecord& record : inventory->live) live.push_back(&record);
  const Result<std::size_t> chosen = ChooseSlice(live, name, geteuid());
  if (chosen) return *live[*chosen];
  // It may be the one that cannot be read.
  if (chosen.error().code == Code::kNotFound) {
    if (Status whole = NothingBroken(*inventory); !whole) return Fail(whole.error());
  }
  return Fail(chosen.error());
}

void Store::Reap() {
  Result<Inventory> inventory = Read();
  const Result<base::Folder> slices = OpenSlices(root_.path);
  if (!inventory || !slices) return;
  for (const SliceRecord& record : inventory->dead) {
    if (Status removed = RemoveSlice(*slices, record.slice.id); !removed)
      continue;  // another user's: theirs to remove
  }
  const Result<std::vector<std::string>> names = slices->List();
  if (!names) return;
  for (const std::string& name : *names) {
    if (!IsAbandoned(name)) continue;
    if (Status removed = slices->RemoveTree(name); !removed) continue;
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
  Result<base::FileLock> lock = AcquireStateLock(root_.path, *clock_);
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
  const Result<base::Folder> slice = OpenSlice(record);
  if (!slice) return Fail(slice.error());
  return slice->WriteAtomic(kRecordFile, RecordText(record), 0644);
}

Status Store::Remove(const SliceRecord& record) {
  const Result<base::Folder> slices = base::Folder::OpenParentOf(record.directory);
  if (!slices) return Fail(slices.error());
  return RemoveSlice(*slices, base::NameOf(record.directory));
}

Result<Changed> Store::SetLimits(const model::Node& node, const std::string& name,
                                 const Change& change) {
  Result<base::FileLock> lock = AcquireStateLock(root_.path, *clock_);
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
  const Status whole = NothingBroken(*inventory);

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
    if (!whole && (memory > card.memory_bytes || cores > card.cores)) return Fail(whole.error());
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
  const Result<base::Folder> slice = OpenSlice(*found);
  if (!slice) return Fail(slice.error());
  if (slice->owner() != found->owner)
    return Fail(Code::kAborted, slice->path() + ": was replaced meanwhile");
  const auto write_record = [&] {
    return slice->WriteAtomic(kRecordFile, RecordText(changed.after), 0644);
  };
  Status done;
  if (grows) done = write_record();
  if (done) done = ChangePolicy(*slice, policy);
  if (done && !grows) done = write_record();
  if (!done) return Unwritten(done.error());
  if (Result<LedgerView> ledger = ReadLedger(*slice, card_bytes)) {
    for (const LedgerCardView& card : ledger->cards) changed.held_bytes.push_back(card.held_bytes);
  }
  return changed;
}

}  // namespace tessera::node
