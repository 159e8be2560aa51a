// This process' slot in the ledger: claimed at the first charge, again after a fork, taken over
// after an exec.
#include <elf.h>
#include <link.h>

#include <cstring>

#include "entry/driver.h"
#include "entry/table.h"
#include "os/os.h"
#include "slice/slice.h"

namespace tessera::fence {

namespace {

using detail::g_own;

constexpr std::uint64_t kPatienceNs = 1'000'000'000;
constexpr std::size_t kMaxResets = 12;

os::SpinMutex g_claim_lock;
void (*g_resets[kMaxResets])();  // atomic

extern "C" [[gnu::visibility("hidden")]] const ElfW(Ehdr) __ehdr_start;  // made by the linker

// Entry points that the driver has and this library stands before.
std::uint32_t HooksActive() {
  std::uint32_t count = 0;
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
    if (EntryLibrary(entry) == Library::kCuda && IsHooked(entry) &&
        DriverFunction(entry) != nullptr)
      ++count;
  }
  return count;
}

// The first bytes of the library's build id as hexadecimal text; empty where it was linked without.
void BuildId(char (&text)[24]) {
  const char* base = reinterpret_cast<const char*>(&__ehdr_start);
  // The whole image lies behind this symbol, which is declared as its header only: the compiler
  // must not take that for its size.
  asm("" : "+r"(base));
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(base + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; ++i) {
    // Addresses of the headers count from where the file was linked to.
    if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0) base -= headers[i].p_vaddr;
  }
  for (int i = 0; i < __ehdr_start.e_phnum; ++i) {
    if (headers[i].p_type != PT_NOTE) continue;
    const char* at = base + headers[i].p_vaddr;
    for (const char* end = at + headers[i].p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* bytes = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        for (unsigned k = 0; k < note.n_descsz && k < 11; ++k) {
          const auto byte = static_cast<unsigned char>(bytes[k]);
          text[2 * k] = "0123456789abcdef"[byte >> 4];
          text[2 * k + 1] = "0123456789abcdef"[byte & 15];
        }
        return;
      }
      at = bytes + (note.n_descsz + 3) / 4 * 4;
    }
  }
}

// Who this process is. Filled under g_claim_lock, or by whoever sweeps first: the values are the
// same.
struct Self {
  std::uint64_t owner = 0;
  std::uint64_t pid_namespace = 0;
  std::uint64_t time_namespace = 0;
  std::uint64_t stack_start = 0;
  bool sees_processes = false;  // /proc shows this pid namespace
};
Self g_self;

Self ReadSelf() {
  Self self;
  const int pid = os::ProcessId();
  // Of this process, whichever pid namespace /proc shows: its start time tells it from one of
  // another namespace with its pid.
  char line[1024] = {};
  const long bytes = os::ReadFile("/proc/self/stat", std::span<char>(line, sizeof line - 1));
  const os::ProcessStat stat =
      os::ParseProcessStat({line, bytes > 0 ? static_cast<std::size_t>(bytes) : 0});
  int shown = 0;  // field 1: who /proc takes this process for
  for (const char* at = line; *at >= '0' && *at <= '9'; ++at) shown = shown * 10 + (*at - '0');
  self.sees_processes = stat.ok && shown == pid;
  self.pid_namespace = os::PidNamespace();
  self.time_namespace = os::TimeNamespace();
  self.stack_start = self.sees_processes ? stat.stack_start : 0;
  self.owner = contract::MakeOwner(static_cast<std::uint64_t>(pid), stat.ok ? stat.start_ticks : 0,
                                   contract::SlotState::kLive);
  return self;
}

void WatchForks() {
  static std::uint32_t watching = 0;
  if (__atomic_exchange_n(&watching, 1u, __ATOMIC_ACQ_REL) == 0) os::OnFork(detail::ForgetParent);
}

const Self& Me() {
  const std::uint64_t known = __atomic_load_n(&g_own.owner, __ATOMIC_ACQUIRE);
  const bool unseen_child =
      known != 0 && !detail::g_wiped &&
      contract::OwnerPid(known) != static_cast<std::uint64_t>(os::ProcessId());
  if (unseen_child) detail::ForgetParent();
  if (known == 0 || unseen_child) {
    WatchForks();
    const Self self = ReadSelf();
    g_self.pid_namespace = self.pid_namespace;
    g_self.time_namespace = self.time_namespace;
    g_self.stack_start = self.stack_start;
    g_self.sees_processes = self.sees_processes;
    __atomic_store_n(&g_self.owner, self.owner, __ATOMIC_RELAXED);
    __atomic_store_n(&g_own.owner, self.owner, __ATOMIC_RELEASE);
  }
  return g_self;
}

// From here on the kernel tells everybody, in any pid namespace, whether the owner of the slot
// still runs.
void LockSlot(std::uint32_t index) {
  const int file = OpenLedgerAgain();
  if (file < 0) return;
  if (os::LockForLife(file, TheSlice().ledger.SlotOffset(index)) == 0)
    contract::Store(TheSlice().ledger.Slot(index).life_lock, std::uint32_t{1});
  os::Close(file);
}

// What the lock says of a slot whose owner cannot be seen.
bool LockIsGone(const contract::LedgerSlot& slot) {
  if (contract::Load(slot.life_lock) != 1) return false;
  const contract::LedgerView& ledger = TheSlice().ledger;
  const auto distance =
      reinterpret_cast<const char*>(&slot) - reinterpret_cast<const char*>(&ledger.Slot(0));
  const int file = OpenLedgerAgain();
  if (file < 0) return false;
  const bool gone =
      os::IsLocked(file, ledger.SlotOffset(0) + static_cast<std::uint64_t>(distance)) == 0;
  os::Close(file);
  return gone;
}

// What /proc says of the owner, who is in this pid namespace.
bool SeemsDead(const contract::LedgerSlot& slot, std::uint64_t owner) {
  const int pid = static_cast<int>(contract::OwnerPid(owner));
  const os::ProcessStat stat = os::ReadProcessStat(pid);
  // Where /proc hides other users' processes, a signal still tells whether they are there.
  if (!stat.ok) return !os::ProcessExists(pid);
  if (stat.Dead()) return true;
  const bool live = contract::OwnerState(owner) == contract::SlotState::kLive;
  if (contract::MakeOwner(static_cast<std::uint64_t>(pid), stat.start_ticks,
                          contract::OwnerState(owner)) != owner) {
    // Another process with that pid, or a clock of another time namespace: only the lock tells.
    const std::uint64_t clock = contract::Load(slot.time_namespace);
    return clock == 0 || clock == g_self.time_namespace ||
           (live && contract::Load(slot.life_lock) == 1);
  }
  if (!live) return false;
  const std::uint64_t stack = contract::Load(slot.stack_start);
  return stack != 0 && stat.stack_start != 0 && stack != stat.stack_start;
}

}  // namespace

void detail::ForgetParent() {
  __atomic_store_n(&g_own.slot, nullptr, __ATOMIC_RELAXED);
  __atomic_store_n(&g_own.owner, std::uint64_t{0}, __ATOMIC_RELAXED);
  g_claim_lock = os::SpinMutex();
  for (auto& place : g_resets) {
    if (auto reset = __atomic_load_n(&place, __ATOMIC_ACQUIRE); reset != nullptr) reset();
  }
  Mode mode;
  __atomic_load(&g_attached, &mode, __ATOMIC_ACQUIRE);
  __atomic_store(&g_own.mode, &mode, __ATOMIC_RELEASE);
}

contract::LedgerSlot* detail::ClaimSlot() {
  Me();  // before the lock, which is its parent's in a child
  if (!g_claim_lock.LockFor(kPatienceNs)) return nullptr;
  contract::LedgerSlot* slot = __atomic_load_n(&g_own.slot, __ATOMIC_ACQUIRE);
  if (slot == nullptr) {
    const Self& me = Me();
    contract::ClaimInfo info;
    info.pid_namespace = me.pid_namespace;
    info.time_namespace = me.time_namespace;
    info.stack_start = me.stack_start;
    info.image_random = os::ImageRandom();
    os::CommandName(std::span<char, 16>(info.command));
    info.hooks_active = HooksActive();
    BuildId(info.build_id);
    const contract::LedgerView& ledger = TheSlice().ledger;
    const int index = contract::Claim(ledger, me.owner, info, os::MonotonicNs(), OwnerIsDead);
    if (index >= 0) {
      slot = &ledger.Slot(static_cast<std::uint32_t>(index));
      LockSlot(static_cast<std::uint32_t>(index));
      __atomic_store_n(&g_own.slot, slot, __ATOMIC_RELEASE);
    }
  }
  g_claim_lock.Unlock();
  return slot;
}

bool OwnerIsDead(const contract::LedgerSlot& slot, std::uint64_t owner) {
  const Self& me = Me();
  const std::uint64_t space = contract::Load(slot.pid_namespace);
  // A reaper has no lock: the slot's is that of the dead.
  const bool live = contract::OwnerState(owner) == contract::SlotState::kLive;
  if (!me.sees_processes || contract::OwnerStart(owner) == 0 ||
      (space != 0 && space != me.pid_namespace))
    return live && LockIsGone(slot);
  if (!SeemsDead(slot, owner)) return false;
  return !live || contract::Load(slot.life_lock) != 1 || LockIsGone(slot);
}

void SweepSlice(std::uint64_t every_ns) {
  const contract::LedgerView& ledger = TheSlice().ledger;
  const std::uint64_t now = every_ns == 0 ? os::MonotonicNs() : os::CoarseMonotonicNs();
  if (every_ns != 0 && !contract::SweepIsDue(ledger, now, every_ns)) return;
  contract::Sweep(ledger, Me().owner, now, OwnerIsDead);
}

void ResetOnFork(void (*reset)()) {
  WatchForks();
  for (auto& place : g_resets) {
    void (*expected)() = nullptr;
    if (__atomic_load_n(&place, __ATOMIC_ACQUIRE) == reset) return;
    if (__atomic_compare_exchange_n(&place, &expected, reset, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return;
  }
}

}  // namespace tessera::fence
