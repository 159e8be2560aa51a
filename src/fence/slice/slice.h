// The slice that this process belongs to: found once, at the first call that needs it.
//
//   if (AttachSlice() == Mode::kFenced) ... TheSlice().policy.LimitBytes(card) ...
//
// Sources, first match wins: /run/tessera/policy; the directory that TESSERA_SLICE_DIR names;
// HAMi's variables; none (inert). Thread safety: every function from any thread. A forked child
// keeps the mappings and claims a slot of its own at its first charge; a child that shares its
// parent's memory (CLONE_VM) shares its slot, which lives as long as the last of them. No driver
// call is made here. Errors: a slice that is meant but cannot be used gives Mode::kRefused and one
// line in SliceProblem(): then nothing is granted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "contract/ledger_ops.h"
#include "contract/policy_view.h"

namespace tessera::fence {

enum class Mode : std::uint32_t { kUnknown, kInert, kFenced, kRefused };

struct Slice {
  contract::PolicyView policy;
  contract::LedgerView ledger;
  bool from_environment = false;  // HAMi's variables: cards have indices, no UUIDs
  // Where the ledger is and which file it was when it was mapped.
  char ledger_path[512] = {};
  std::uint64_t ledger_inode = 0, ledger_device = 0;
  char problem[960] = {};
};

namespace detail {
#ifdef __x86_64__
inline constexpr std::size_t kPageBytes = 4096;
#else
inline constexpr std::size_t kPageBytes = 65536;  // the largest that a kernel may have
#endif
// What is this process' alone, in pages of which every child gets zeros, however it was forked:
// _Fork() and clone by number tell nobody in the child.
struct alignas(kPageBytes) Own {
  Mode mode;                   // atomic
  std::uint32_t forgetting;    // atomic; 1: a thread makes the child forget what is its parent's
  contract::LedgerSlot* slot;  // atomic
  std::uint64_t owner;         // atomic; who this process is, 0 = not known yet
};
extern Own g_own;
extern Mode g_attached;  // atomic; what this process or its parents have found
extern bool g_wiped;     // children get zeros; otherwise who claims or sweeps looks at its pid
extern Slice g_slice;
Mode AttachSlow();
contract::LedgerSlot* ClaimSlot();
// What is of the parent goes: in a child, before anything else there.
void ForgetParent();
}  // namespace detail

inline Mode AttachSlice() {
  Mode mode;
  __atomic_load(&detail::g_own.mode, &mode, __ATOMIC_ACQUIRE);
  return mode != Mode::kUnknown ? mode : detail::AttachSlow();
}

// Meaningful once AttachSlice() has answered.
inline const Slice& TheSlice() { return detail::g_slice; }
// Why the slice is refused, in one line: what, its value, what is legal. Empty in other modes.
const char* SliceProblem();

// This process' lines in the ledger for a card; nullptr when all slots are taken by the living
// (counted there).
inline contract::SlotCard* OwnSlot(std::uint32_t card) {
  contract::LedgerSlot* slot = __atomic_load_n(&detail::g_own.slot, __ATOMIC_ACQUIRE);
  if (slot == nullptr) slot = detail::ClaimSlot();
  return slot == nullptr ? nullptr : &slot->cards[card];
}
// This process' slot as a whole, without claiming one; nullptr before the first charge.
inline contract::LedgerSlot* OwnSlotOrNull() {
  return __atomic_load_n(&detail::g_own.slot, __ATOMIC_ACQUIRE);
}

// Looks for dead processes and takes them out of the books. `every_ns` 0: now; otherwise only if
// nobody did for so long.
void SweepSlice(std::uint64_t every_ns);

// Remembers which file the ledger is, while it is open.
void RememberLedger(Slice& slice, std::string_view path, int descriptor);
// The slice's ledger, opened anew for its locks; negative where its path leads to another file now.
int OpenLedgerAgain();

// True when the process that a slot's owner word names is gone: by its pid where this process sees
// it, by the lock that the kernel keeps for the owner where it does not (another pid namespace, no
// /proc). "Alive" where neither tells.
bool OwnerIsDead(const contract::LedgerSlot& slot, std::uint64_t owner);

// Runs `reset` in every forked child, after the slice has been put in order there.
void ResetOnFork(void (*reset)());

}  // namespace tessera::fence
