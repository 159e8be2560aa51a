// Process slots: who uses the node, and who is gone.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kZombieLookNs = 5'000'000;

// What /proc/PID/stat says; `found` false when there is no such process.
struct ProcessFacts {
  bool found = false;
  char state = 0;
  std::uint64_t threads = 0, start_ticks = 0, stack = 0;
};

ProcessFacts Facts(pid_t pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  char text[1024];
  ProcessFacts facts;
  if (ReadSmallFile(path, text, sizeof text) <= 0) return facts;
  const char* at = strrchr(text, ')');  // the name before it may hold anything
  if (at == nullptr || at[1] == 0) return facts;
  facts.found = true;
  facts.state = at[2];
  at += 3;
  for (int field = 4; field <= 28 && *at != 0; ++field) {
    char* end = nullptr;
    const std::uint64_t value = strtoull(at, &end, 10);
    if (end == at) break;
    if (field == 20) facts.threads = value;
    if (field == 22) facts.start_ticks = value;
    if (field == 28) facts.stack = value;
    at = end;
  }
  return facts;
}

std::uint64_t NamespaceOf(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 ? info.st_ino : 0;
}

std::atomic<std::uint64_t> own_namespace{0};  // a child may be in another one than its parent

std::uint64_t OwnNamespace() {
  std::uint64_t inode = own_namespace.load(std::memory_order_relaxed);
  if (inode == 0) {
    inode = NamespaceOf("/proc/self/ns/pid");
    own_namespace.store(inode, std::memory_order_relaxed);
  }
  return inode;
}

pid_t PidOf(std::uint64_t owner) { return static_cast<pid_t>(owner & kPidMask); }
std::uint64_t TicksOf(std::uint64_t owner) { return (owner & ~kTakingOut) >> kPidBits; }

bool FactsAgree(const ProcessFacts& facts, std::uint64_t owner, std::uint64_t image) {
  if (!facts.found) return false;
  if ((facts.state == 'Z' || facts.state == 'X') && facts.threads <= 1) return false;
  // The start is not known where /proc was not mounted when the slot was claimed.
  if (TicksOf(owner) != 0 && facts.start_ticks != TicksOf(owner)) return false;
  // The stack reads 0 for a process of another user.
  return image == 0 || facts.stack == 0 || facts.stack == image;
}

// The last number of the line NSpid: the pid in the process' innermost namespace.
pid_t InnermostPid(pid_t pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/status", static_cast<int>(pid));
  char text[4096];
  if (ReadSmallFile(path, text, sizeof text) <= 0) return 0;
  const char* line = strstr(text, "\nNSpid:");
  if (line == nullptr) return 0;
  line += 7;
  pid_t last = 0;
  while (*line != 0 && *line != '\n') {
    char* end = nullptr;
    const long value = strtol(line, &end, 10);
    if (end == line) break;
    last = static_cast<pid_t>(value);
    line = end;
  }
  return last;
}

// The pid that a process of another namespace has here; 0 when it is not to be seen.
pid_t PidHere(std::uint64_t owner, std::uint64_t pid_namespace) {
  DIR* all = opendir("/proc");
  if (all == nullptr) return 0;
  pid_t found = 0;
  while (dirent* entry = readdir(all)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid <= 0 || InnermostPid(pid) != PidOf(owner)) continue;
    if (TicksOf(owner) != 0 && Facts(pid).start_ticks != TicksOf(owner)) continue;
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", static_cast<int>(pid));
    const std::uint64_t of_pid = NamespaceOf(path);
    if (pid_namespace != 0 && of_pid != 0 && of_pid != pid_namespace) continue;
    found = pid;
    break;
  }
  closedir(all);
  return found;
}

// The process of `owner`, which is not in this namespace (or was killed before it could say where
// it is).
bool ForeignAlive(const NodeState* node, std::uint64_t owner, std::uint64_t image,
                  std::uint64_t pid_namespace) {
  const pid_t pid = PidHere(owner, pid_namespace);
  if (pid != 0) return FactsAgree(Facts(pid), owner, image);
  // Only where every process of the node is to be seen does "not found" mean that it is gone.
  return node == nullptr || node->pid_namespace != OwnNamespace();
}

bool Alive(const NodeState* node, const ProcessSlot& slot, std::uint64_t owner) {
  const std::uint64_t image = slot.image.load(std::memory_order_acquire);
  const std::uint64_t pid_namespace = slot.pid_namespace.load(std::memory_order_acquire);
  if (pid_namespace == 0 || pid_namespace != OwnNamespace()) {
    return ForeignAlive(node, owner & ~kTakingOut, image, pid_namespace);
  }
  const pid_t pid = PidOf(owner);
  if (kill(pid, 0) != 0 && errno == ESRCH) return false;
  return FactsAgree(Facts(pid), owner, image);
}

// One who takes out a slot writes itself over the owner; it is the slot's user while it does.
bool TakerAlive(std::uint64_t owner) { return FactsAgree(Facts(PidOf(owner)), owner, 0); }

std::uint64_t OwnIdentity(ProcessFacts* facts) {
  *facts = Facts(getpid());
  return facts->start_ticks << kPidBits | static_cast<std::uint64_t>(getpid());
}

// Each wish is another value, so that a recount clears only the wish that it saw.
void WishForRecount(CardState& card) {
  card.recount_wanted.store(NowNs() | 1, std::memory_order_release);
}

// Empties a slot that this process has marked as being taken out. `whole` is false when somebody
// else died doing it.
void Empty(NodeState& node, int index, bool whole) {
  ProcessSlot& slot = node.processes[index];
  for (std::uint32_t card = 0; card < node.card_count; ++card) {
    CardProcess& on_card = slot.cards[card];
    const std::uint64_t held = on_card.held.load(std::memory_order_acquire);
    if (held == 0) continue;
    if (whole && (held & kUnderWayMask) == 0) {
      SubtractUsed(node.cards[card], held);
    } else {
      WishForRecount(node.cards[card]);
    }
  }
  if (!whole) {
    for (std::uint32_t card = 0; card < node.card_count; ++card) {
      WishForRecount(node.cards[card]);
    }
  }
  for (CardProcess& on_card : slot.cards) {
    on_card.held.store(0, std::memory_order_relaxed);
    on_card.contexts.store(0, std::memory_order_relaxed);
    on_card.busy_ns.store(0, std::memory_order_relaxed);
    on_card.mig.store(0, std::memory_order_relaxed);
  }
  slot.image.store(0, std::memory_order_relaxed);
  slot.pid_namespace.store(0, std::memory_order_relaxed);
  slot.started_ns.store(0, std::memory_order_relaxed);
  slot.owner.store(0, std::memory_order_release);
}

// Takes out the slot of a dead `owner`; nothing happens if somebody else does it already.
void TakeOut(NodeState& node, int index, std::uint64_t owner) {
  ProcessFacts facts;
  const std::uint64_t taker = OwnIdentity(&facts) | kTakingOut;
  const bool whole = (owner & kTakingOut) == 0;
  if (!node.processes[index].owner.compare_exchange_strong(owner, taker, std::memory_order_acq_rel))
    return;
  Empty(node, index, whole);
}

int SlotsHigh(const NodeState& node) {
  return static_cast<int>(
      std::min<std::uint64_t>(node.slots_high.load(std::memory_order_acquire), kMaxProcesses));
}

void RecountWhereWanted(NodeState& node) {
  for (std::uint32_t card = 0; card < node.card_count; ++card) {
    if (node.cards[card].recount_wanted.load(std::memory_order_acquire) != 0) Recount(node, card);
  }
}

// The slot of this process: another copy of this library in the process may have claimed it. A slot
// of the program that exec replaced is emptied.
int FindOwn(NodeState& node, std::uint64_t identity, std::uint64_t image) {
  for (int i = 0; i < SlotsHigh(node); ++i) {
    ProcessSlot& slot = node.processes[i];
    if (slot.owner.load(std::memory_order_acquire) != identity) continue;
    if (slot.pid_namespace.load(std::memory_order_acquire) != OwnNamespace()) continue;
    if (slot.image.load(std::memory_order_acquire) == image) return i;
    TakeOut(node, i, identity);
  }
  return -1;
}

int ClaimFree(NodeState& node, std::uint64_t identity, std::uint64_t image) {
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessSlot& slot = node.processes[i];
    std::uint64_t none = 0;
    if (slot.owner.load(std::memory_order_relaxed) != 0) continue;
    // Before the claim, so that a sweep never misses a claimed slot.
    std::uint64_t high = node.slots_high.load(std::memory_order_relaxed);
    while (high < static_cast<std::uint64_t>(i) + 1 &&
           !node.slots_high.compare_exchange_weak(high, i + 1)) {
    }
    if (!slot.owner.compare_exchange_strong(none, identity, std::memory_order_acq_rel)) continue;
    memset(slot.command, 0, sizeof slot.command);
    const int length = ReadSmallFile("/proc/self/comm", slot.command, sizeof slot.command);
    if (length > 0 && slot.command[length - 1] == '\n') slot.command[length - 1] = 0;
    ReadOwnCgroup(slot.cgroup, sizeof slot.cgroup);
    slot.started_ns.store(NowNs(), std::memory_order_relaxed);
    slot.image.store(image, std::memory_order_release);
    slot.pid_namespace.store(OwnNamespace(), std::memory_order_release);
    for (std::uint32_t card = 0; card < node.card_count; ++card) {
      for (EngineState& engine : node.cards[card].engines) ReleaseBuffersOf(engine, i);
    }
    return i;
  }
  return -1;
}

std::atomic<int> own_slot{-1};
std::atomic<int> claiming{0};
std::atomic<int> fork_handler{0};

}  // namespace

int OwnProcess() {
  const int known = own_slot.load(std::memory_order_acquire);
  if (known >= 0) return known;
  NodeState* node = AttachNode();
  if (node == nullptr) return -1;
  while (claiming.exchange(1, std::memory_order_acquire) != 0) sched_yield();
  int slot = own_slot.load(std::memory_order_acquire);
  if (slot < 0) {
    if (fork_handler.exchange(1) == 0) pthread_atfork(nullptr, nullptr, ForgetProcessAfterFork);
    ProcessFacts facts;
    const std::uint64_t identity = OwnIdentity(&facts);
    slot = FindOwn(*node, identity, facts.stack);
    if (slot < 0) slot = ClaimFree(*node, identity, facts.stack);
    if (slot < 0) {
      SweepThoroughly(*node);
      slot = ClaimFree(*node, identity, facts.stack);
    }
    own_slot.store(slot, std::memory_order_release);
  }
  claiming.store(0, std::memory_order_release);
  return slot;
}

void ForgetProcessAfterFork() {
  own_slot.store(-1, std::memory_order_release);
  own_namespace.store(0, std::memory_order_relaxed);
  claiming.store(0, std::memory_order_release);
}

bool ProcessAlive(const ProcessSlot& slot) {
  const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
  if (owner == 0 || (owner & kTakingOut) != 0) return false;
  return Alive(AttachNode(), slot, owner);
}

pid_t VisiblePid(const ProcessSlot& slot) {
  const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
  if (owner == 0 || (owner & kTakingOut) != 0) return 0;
  const std::uint64_t pid_namespace = slot.pid_namespace.load(std::memory_order_acquire);
  if (pid_namespace == OwnNamespace()) return PidOf(owner);
  return PidHere(owner, pid_namespace);
}

void SweepThoroughly(NodeState& node) {
  const std::uint64_t began = NowNs();
  for (int i = 0; i < SlotsHigh(node); ++i) {
    ProcessSlot& slot = node.processes[i];
    const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (owner == 0) continue;
    const bool alive = (owner & kTakingOut) != 0 ? TakerAlive(owner) : Alive(&node, slot, owner);
    if (!alive) TakeOut(node, i, owner);
  }
  RecountWhereWanted(node);
  const std::uint64_t ended = NowNs();
  node.sweep_cost_ns.store(ended - began, std::memory_order_relaxed);
  node.last_sweep_ns.store(ended, std::memory_order_relaxed);
}

void SweepDeadProcesses() {
  NodeState* node = AttachNode();
  if (node == nullptr) return;
  // Thousands of processes: not more than a few percent of the time goes into looking.
  const std::uint64_t pause =
      std::max(kZombieLookNs, 20 * node->sweep_cost_ns.load(std::memory_order_relaxed));
  if (NowNs() - node->last_sweep_ns.load(std::memory_order_relaxed) > pause) {
    SweepThoroughly(*node);
    return;
  }
  const int own = own_slot.load(std::memory_order_relaxed);
  for (int i = 0; i < SlotsHigh(*node); ++i) {
    ProcessSlot& slot = node->processes[i];
    const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
    if (owner == 0 || i == own || (owner & kTakingOut) != 0) continue;
    if (slot.pid_namespace.load(std::memory_order_acquire) != OwnNamespace()) continue;
    if (kill(PidOf(owner), 0) != 0 && errno == ESRCH) TakeOut(*node, i, owner);
  }
  RecountWhereWanted(*node);
}

}  // namespace tessera::sim
