#include "watch/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "node/slice_folder.h"
#include "watch/maps_reader.h"

namespace tessera::watch {
namespace {

using ProcessMap = std::map<pid_t, const ProcessEntry*>;

FileIdentity LedgerOf(const node::SliceRecord& record) {
  const Result<base::Folder> slice = node::OpenSlice(record);
  if (!slice) return {};
  const Result<base::Fd> ledger = node::OpenLedger(*slice, O_PATH);
  struct stat info{};
  if (!ledger || fstat(ledger->get(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

void ReadDriver(const Sources& sources, Snapshot& snapshot) {
  if (!sources.nvml) {
    snapshot.driver = Fail(sources.nvml.error());
    return;
  }
  driver::Nvml& nvml = **sources.nvml;
  snapshot.driver = nvml.Driver();
  const auto cards = nvml.Cards();
  const auto usages = nvml.Usages();
  if (!cards) return;
  for (std::size_t i = 0; i < cards->size(); ++i) {
    CardFacts facts;
    facts.index = static_cast<int>(i);
    facts.card = (*cards)[i];
    if (usages && i < usages->size()) {
      facts.usage = (*usages)[i];
    } else if (!usages) {
      facts.usage = Fail(usages.error());
    }
    snapshot.cards.push_back(std::move(facts));
  }
}

CardFacts* FindCard(Snapshot& snapshot, const model::Uuid& uuid) {
  const std::string text = model::ToString(uuid);
  for (CardFacts& facts : snapshot.cards) {
    if (!facts.card) continue;
    if (facts.card->uuid == text) return &facts;
    for (const driver::MigInstance& instance : facts.card->mig) {
      if (instance.uuid == text) return &facts;
    }
  }
  return nullptr;
}

// What a look has to find the processes of one slice with.
struct Search {
  const node::SliceRecord& record;
  MapsReader& maps;
  const std::optional<node::Place>& policy;
  const std::set<pid_t>& claimed;  // pids that slots of the ledger name: candidates only
  const std::set<pid_t>& listed;   // pids that the driver names: candidates only
  const std::vector<ProcessEntry>& all;
  Processes& processes;

  // slice.json is its owner's text: it gives that user no other user's process.
  bool MayBelong(pid_t pid) const {
    if (record.owner == 0) return true;
    const std::optional<uid_t> user = processes.UserOf(pid);
    return !user || *user == record.owner;
  }
  bool SeesPolicy(pid_t pid) const {
    if (record.fencing != node::Fencing::kNamespace || !policy) return false;
    return processes.PolicyOf(pid).Shows(*policy);
  }
  bool MapsLedger(pid_t pid) const {
    const std::optional<Mapped> mapped = maps.Read(pid);
    return mapped && mapped->ledger;
  }
};

// The processes in the slice's mount namespace. The kernel gives inodes of namespaces again: once
// all of the slice have left theirs, the number may be that of another tenant's. So one of them
// must be known by something that nobody else can have.
std::vector<pid_t> InMountNamespace(const Search& search) {
  const node::SliceRecord& record = search.record;
  std::vector<pid_t> pids;
  bool anchored = false;
  for (const ProcessEntry& process : search.all) {
    if (record.mount_namespace == 0 || process.mount_namespace != record.mount_namespace) continue;
    if (!search.MayBelong(process.identity.pid)) continue;
    anchored = anchored || process.identity == record.launcher;
    pids.push_back(process.identity.pid);
  }
  const auto sees = [&](pid_t pid) { return search.SeesPolicy(pid); };
  const auto maps = [&](pid_t pid) { return search.MapsLedger(pid); };  // dearer
  if (!anchored && std::ranges::none_of(pids, sees) && std::ranges::none_of(pids, maps)) {
    pids.clear();
  }
  return pids;
}

// The processes of a slice and how each belongs to it.
std::map<pid_t, Belongs> Members(const Search& search) {
  std::map<pid_t, Belongs> members;
  for (pid_t pid : InMountNamespace(search)) members.emplace(pid, Belongs::kMountNamespace);
  for (const ProcessEntry& process : search.all) {
    const pid_t pid = process.identity.pid;
    if (process.identity == search.record.launcher && search.MayBelong(pid)) {
      members.emplace(pid, Belongs::kDescendant);
    }
  }
  for (pid_t pid : search.claimed) {
    if (members.contains(pid) || !search.MapsLedger(pid)) continue;
    if (search.MayBelong(pid)) members.emplace(pid, Belongs::kMapsLedger);
  }
  // One that left the mount namespace and its parents took the view of the slice along.
  for (pid_t pid : search.listed) {
    if (members.contains(pid) || !search.SeesPolicy(pid)) continue;
    if (search.MayBelong(pid)) members.emplace(pid, Belongs::kSeesPolicy);
  }
  // Nor can anybody leave the user namespace that was made for the slice. Its number is the slice's
  // as long as something that is certainly of it keeps it.
  for (pid_t pid : search.listed) {
    if (members.empty() || search.record.user_namespace == 0) break;
    if (members.contains(pid) || !search.MayBelong(pid)) continue;
    if (search.processes.InUserNamespace(pid, search.record.user_namespace))
      members.emplace(pid, Belongs::kUserNamespace);
  }
  // Children of members, until nothing changes; pids do not follow ancestry, so once through is not
  // enough.
  for (bool changed = true; changed;) {
    changed = false;
    for (const ProcessEntry& process : search.all) {
      if (members.contains(process.parent) &&
          members.emplace(process.identity.pid, Belongs::kDescendant).second) {
        changed = true;
      }
    }
  }
  return members;
}

std::string CutList(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size() && i < 3; ++i) {
    text += (i ? ", " : "") + std::to_string(numbers[i]);
  }
  if (numbers.size() > 3) text += " and " + std::to_string(numbers.size() - 3) + " more";
  return text;
}

Result<node::LedgerView> ReadLedgerOf(const SliceFacts& facts) {
  const node::SliceRecord& record = facts.record;
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < record.slice.cards.size(); ++i) {
    const bool known = facts.policy && i < facts.policy->cards.size();
    sizes.push_back(known ? facts.policy->cards[i].physical_bytes : model::kMaxMemory);
  }
  const Result<base::Folder> slice = node::OpenSlice(record);
  if (!slice) return Fail(slice.error());
  return node::ReadLedger(*slice, sizes);
}

void ReadFiles(SliceFacts& facts) {
  const node::SliceRecord& record = facts.record;
  const Result<base::Folder> slice = node::OpenSlice(record);
  facts.policy = slice ? node::ReadPolicy(*slice) : Fail(slice.error());
  facts.ledger = ReadLedgerOf(facts);
  if (!facts.policy) facts.remarks.push_back("policy: " + facts.policy.error().message);
  if (!facts.ledger) {
    // Slices of root keep their ledger from other users; that is as it should be.
    const bool hidden = facts.ledger.error().code == Code::kPermissionDenied;
    facts.remarks.push_back(hidden ? kHiddenLedger : "ledger: " + facts.ledger.error().message);
    return;
  }
  for (const std::string& remark : facts.ledger->remarks) {
    facts.remarks.push_back("ledger: " + Printable(remark));
  }
  if (!facts.policy) return;
  for (std::size_t i = 0; i < facts.ledger->cards.size() && i < facts.policy->cards.size(); ++i) {
    const std::uint64_t held = facts.ledger->cards[i].held_bytes;
    const std::uint64_t limit = facts.policy->cards[i].limit_bytes;
    if (held <= limit) continue;
    facts.remarks.push_back("ledger: " + model::MibText(held) + " held is above the limit of " +
                            model::MibText(limit) + " (lowered below what was held, or forged)");
  }
}

// A process may have several slots: one for each copy of the fence that is loaded in it.
using SlotMap = std::multimap<pid_t, const node::LedgerSlotView*>;

SlotMap SlotsByPid(const Result<node::LedgerView>& ledger) {
  SlotMap slots;
  if (!ledger) return slots;
  for (const node::LedgerSlotView& slot : ledger->slots) {
    if (slot.live && slot.pid_here > 0) slots.emplace(slot.pid_here, &slot);
  }
  return slots;
}

std::uint64_t HeldBy(pid_t pid, const SlotMap& slots, std::size_t card) {
  std::uint64_t sum = 0;
  const auto [first, last] = slots.equal_range(pid);
  for (auto slot = first; slot != last; ++slot) {
    if (card < slot->second->held.size()) sum += slot->second->held[card];
  }
  return sum;
}

// `after`: the ledger once more, read after the driver was asked. What a process charged or gave
// back between the two is in one of them; the fence charges before the driver grants and gives back
// after it has freed.
void AddProcesses(const Sources& sources, const std::vector<ProcessEntry>& all,
                  const ProcessMap& by_pid, const std::set<pid_t>& listed, SliceFacts& facts,
                  const Result<node::LedgerView>& after) {
  const node::SliceRecord& record = facts.record;
  MapsReader maps(*sources.processes, *sources.clock, LedgerOf(record));
  const std::optional<node::Place> policy = node::PlaceOfPolicy(record);

  const SlotMap slots = SlotsByPid(facts.ledger), slots_after = SlotsByPid(after);
  std::set<pid_t> claimed;
  for (const auto& [pid, slot] : slots) claimed.insert(pid);

  const std::map<pid_t, Belongs> members =
      Members({record, maps, policy, claimed, listed, all, *sources.processes});
  for (pid_t pid : listed) {  // first those that matter
    if (members.contains(pid)) maps.Read(pid);
  }
  for (const auto& [pid, by] : members) {
    const auto entry = by_pid.find(pid);
    if (entry == by_pid.end()) continue;
    SliceProcess process;
    process.process = *entry->second;
    process.command_line = sources.processes->CommandLine(process.process);
    process.by = by;
    process.mapped = maps.Read(pid);
    if (record.fencing == node::Fencing::kNamespace && policy) {
      const node::SeenPolicy seen = sources.processes->PolicyOf(pid);
      if (seen.place) process.policy_is_ours = *seen.place == *policy;
    }
    process.held.assign(record.slice.cards.size(), 0);
    process.driver.assign(record.slice.cards.size(), std::nullopt);
    for (const SlotMap* look : {&slots_after, &slots}) {
      if (const auto slot = look->find(pid); slot != look->end())
        process.slot = slot->second->index;
    }
    for (std::size_t i = 0; i < process.held.size(); ++i) {
      process.held[i] = std::max(HeldBy(pid, slots, i), HeldBy(pid, slots_after, i));
    }
    facts.processes.push_back(std::move(process));
  }
  if (maps.left_out() > 0) {
    facts.remarks.push_back("maps: those of " + std::to_string(maps.left_out()) +
                            " processes were not read, the others took too long");
  }

  std::vector<std::uint32_t> strangers;
  for (const auto& [pid, slot] : slots) {
    if (members.contains(pid) ||
        (!strangers.empty() && strangers.back() == static_cast<std::uint32_t>(pid)))
      continue;
    // One that has ended since the ledger was read was no stranger.
    if (!base::Alive({pid, slot->owner.start_ticks})) continue;
    strangers.push_back(static_cast<std::uint32_t>(pid));
  }
  if (!strangers.empty()) {
    facts.remarks.push_back("ledger: names pid " + CutList(strangers) + ", not in this slice");
  }
}

std::set<pid_t> ListedByDriver(const Snapshot& snapshot) {
  std::set<pid_t> pids;
  for (const CardFacts& card : snapshot.cards) {
    if (!card.usage) continue;
    for (const driver::ProcessMemory& memory : card.usage->processes) {
      pids.insert(static_cast<pid_t>(memory.pid));
    }
  }
  return pids;
}

void AddDriverFigures(Snapshot& snapshot) {
  std::map<pid_t, SliceProcess*> process_of;
  std::map<pid_t, SliceFacts*> slice_of;
  for (SliceFacts& slice : snapshot.slices) {
    for (SliceProcess& process : slice.processes) {
      process_of.emplace(process.process.identity.pid, &process);
      slice_of.emplace(process.process.identity.pid, &slice);
    }
  }
  for (CardFacts& card : snapshot.cards) {
    if (!card.usage) continue;
    for (const driver::ProcessMemory& memory : card.usage->processes) {
      const pid_t pid = static_cast<pid_t>(memory.pid);
      const auto found = process_of.find(pid);
      if (found == process_of.end()) {
        snapshot.foreign.push_back({card.index, pid, {}, memory.bytes});
        continue;
      }
      const std::vector<model::SliceCard>& slice_cards = slice_of[pid]->record.slice.cards;
      bool ours = false;
      for (std::size_t i = 0; i < slice_cards.size(); ++i) {
        if (FindCard(snapshot, slice_cards[i].uuid) != &card) continue;
        ours = true;
        found->second->driver[i] = memory.bytes;
      }
      if (!ours) found->second->other_cards.push_back(card.index);
    }
  }
}

void AddPromises(Snapshot& snapshot) {
  for (const SliceFacts& slice : snapshot.slices) {
    for (std::size_t i = 0; i < slice.record.slice.cards.size(); ++i) {
      const model::SliceCard& promise = slice.record.slice.cards[i];
      CardFacts* card = FindCard(snapshot, promise.uuid);
      if (card == nullptr) continue;
      card->promised_bytes += promise.memory_bytes;
      card->promised_cores += promise.cores;
      card->slices += 1;
      if (slice.ledger && i < slice.ledger->cards.size()) {
        card->held_bytes += slice.ledger->cards[i].held_bytes;
      }
    }
  }
}

}  // namespace

Snapshot MakeSnapshot(const node::Inventory& inventory, const Sources& sources) {
  Snapshot snapshot;
  snapshot.taken_s = sources.clock->WallSeconds();
  snapshot.broken = inventory.broken;
  for (const node::SliceRecord& record : inventory.live) {
    SliceFacts facts;
    facts.record = record;
    ReadFiles(facts);
    snapshot.slices.push_back(std::move(facts));
  }
  ReadDriver(sources, snapshot);
  std::vector<Result<node::LedgerView>> after;
  for (const SliceFacts& facts : snapshot.slices) after.push_back(ReadLedgerOf(facts));
  const std::set<pid_t> listed = ListedByDriver(snapshot);
  const std::vector<ProcessEntry> all = sources.processes->All();
  ProcessMap by_pid;
  for (const ProcessEntry& process : all) by_pid.emplace(process.identity.pid, &process);
  for (std::size_t i = 0; i < snapshot.slices.size(); ++i) {
    AddProcesses(sources, all, by_pid, listed, snapshot.slices[i], after[i]);
  }
  AddDriverFigures(snapshot);
  for (ForeignProcess& foreign : snapshot.foreign) {
    const auto found = by_pid.find(foreign.pid);
    if (found != by_pid.end()) foreign.command = sources.processes->CommandLine(*found->second);
  }
  sources.processes->EndLook();
  AddPromises(snapshot);
  return snapshot;
}

Snapshot TakeSnapshot(const std::string& state, const Sources& sources) {
  const Result<node::StateRoot> root = node::FindStateRootToRead(state);
  Result<node::Inventory> inventory = node::Inventory{};
  if (root) inventory = node::Store(*root, *sources.clock).Read();
  Snapshot snapshot = MakeSnapshot(inventory ? *inventory : node::Inventory{}, sources);
  if (root) {
    snapshot.state_path = root->path;
    snapshot.state_note = root->note;
  } else if (root.error().code != Code::kNotFound) {
    snapshot.state_error = root.error();
  } else if (!state.empty()) {
    // A misspelt directory looks like an empty machine: said, since it may be a new one as well.
    snapshot.state_note = "Nothing was ever promised in " + Printable(state) + ".";
  }
  if (!inventory) snapshot.state_error = inventory.error();
  return snapshot;
}

}  // namespace tessera::watch
