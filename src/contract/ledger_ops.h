// The ledger protocol: how a process charges memory to its slice, and how the living put the books
// right after the dead. Used by the fence in every process; readers need only ledger_view.h.
//
//   int slot = Claim(view, self, info, dead);
//   if (Charge(view.Card(c), view.Slot(slot).cards[c], Kind::kLinear, bytes, limit)) ...
//   Release(view.Card(c), view.Slot(slot).cards[c], Kind::kLinear, bytes);
//
// Thread safety: any function, any thread, any process. Nothing waits: every loop is lock-free or
// bounded. Invariants, true between any two instructions and after a SIGKILL at any of them:
//   1. total >= the bytes that living processes were granted and have not begun to release. A
//   charge is checked against
//      `total` by one compare-and-swap, so the grants of a card never exceed the limit that they
//      were checked against.
//   2. Bytes of a held word change only after `total` changed, and only while the word's operation
//   count is not 0. So a
//      slot whose counts are 0 owes exactly its bytes to `total`.
//   3. A slot is given up by one compare-and-swap of its owner word; what is left of it is taken
//   out once.
//   4. Where 2 cannot tell (death inside a charge, death of a reaper), `total` is left too high and
//   a recount is wanted;
//      never too low.
// `Step::At()` is called between all steps that other processes can tell apart: tests stop or kill
// there. `dead(slot, owner)` says whether the process that `owner` names is gone, judged as the
// slot's fields tell; it must answer "alive" where it cannot know.
#pragma once

#include <cstdint>

#include "contract/ledger_view.h"

namespace tessera::contract {

struct NoSteps {
  static void At() {}
};

namespace detail {

constexpr std::uint64_t NextWord(std::uint64_t word, std::uint64_t bytes) {
  return bytes << kBytesShift | ((word + 1) & kOpsMask);
}

// `seen` is a value that the total had: where it has another by now, the first swap finds out.
template <class Step>
void TakeFromTotal(LedgerCard& card, std::uint64_t bytes, std::uint64_t seen) {
  do {
    Step::At();
  } while (!CompareExchange(card.total, seen,
                            NextWord(seen, WordBytes(seen) > bytes ? WordBytes(seen) - bytes : 0)));
}

// Never the same for two deaths, never 0: who clears the wish can tell that a newer one came.
constexpr std::uint64_t RecountWish(std::uint64_t owner, std::uint64_t slot) {
  std::uint64_t x = owner + slot * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  return (x ^ x >> 32) | 1;
}

struct Snapshot {
  std::uint64_t bytes = 0;
  std::uint64_t mix = 0;
  bool quiet = true;
};

template <class Step>
Snapshot Collect(const LedgerView& view, std::uint32_t card) {
  Snapshot s;
  for (std::uint32_t i = 0, n = view.SlotsInUse(); i < n; ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    if (owner == 0) continue;
    Step::At();
    if (OwnerState(owner) != SlotState::kLive) return {0, 0, false};
    s.mix = (s.mix ^ owner) * 0x9e3779b97f4a7c15u + i;
    for (const std::uint64_t& held : slot.cards[card].held) {
      const std::uint64_t word = Load(held);
      if (WordOps(word) != 0) return {0, 0, false};
      s.bytes += WordBytes(word);
      s.mix = (s.mix ^ word) * 0x9e3779b97f4a7c15u;
    }
  }
  s.quiet = s.bytes <= kMaxBytes;
  return s;
}

}  // namespace detail

// Takes `bytes` of `kind` for the slot's owner; false and nothing changed when the card's total
// would exceed `limit`.
template <class Step = NoSteps>
bool Charge(LedgerCard& card, SlotCard& slot, Kind kind, std::uint64_t bytes, std::uint64_t limit) {
  std::uint64_t& held = slot.held[static_cast<std::uint32_t>(kind)];
  const std::uint64_t most = limit < kMaxBytes ? limit : kMaxBytes;
  // Before the atomic addition, so that nothing waits for the load behind it.
  std::uint64_t seen = Load(card.total);
  Step::At();
  FetchAdd(held, std::uint64_t{1});
  Step::At();
  for (;;) {
    if (bytes > most || WordBytes(seen) > most - bytes) {
      Step::At();
      FetchSub(held, std::uint64_t{1});
      return false;
    }
    Step::At();
    if (CompareExchange(card.total, seen, detail::NextWord(seen, WordBytes(seen) + bytes))) break;
  }
  Step::At();
  FetchAdd(held, (bytes << kBytesShift) - 1);
  if (const std::uint64_t now = WordBytes(seen) + bytes; LoadRelaxed(card.peak_bytes) < now) {
    RaiseTo(card.peak_bytes, now);
  }
  return true;
}

// For what the driver has already taken and nobody can give back (contexts, modules, settled
// pools): never refused.
template <class Step = NoSteps>
void ChargeAlways(LedgerCard& card, SlotCard& slot, Kind kind, std::uint64_t bytes) {
  Charge<Step>(card, slot, kind, bytes, kMaxBytes);
}

// Gives back what an earlier Charge of the same slot and kind took, after the driver has freed it.
template <class Step = NoSteps>
void Release(LedgerCard& card, SlotCard& slot, Kind kind, std::uint64_t bytes) {
  std::uint64_t& held = slot.held[static_cast<std::uint32_t>(kind)];
  const std::uint64_t seen = Load(card.total);
  Step::At();
  FetchAdd(held, std::uint64_t{1});
  Step::At();
  detail::TakeFromTotal<Step>(card, bytes, seen);
  Step::At();
  FetchSub(held, (bytes << kBytesShift) + 1);
}

inline void CountDenied(LedgerCard& card, std::uint64_t bytes) {
  FetchAdd(card.denied_count, std::uint64_t{1});
  Store(card.denied_bytes, bytes);
}

// Frees slot `index` if its owner word is still `seen` and `dead` confirms it once the slot is
// ours.
template <class Step = NoSteps, typename Dead>
bool Reap(const LedgerView& view, std::uint32_t index, std::uint64_t seen, std::uint64_t self,
          Dead&& dead) {
  LedgerSlot& slot = view.Slot(index);
  const std::uint64_t mine = MakeOwner(OwnerPid(self), OwnerStart(self), SlotState::kReaping);
  std::uint64_t expected = seen;
  if (!CompareExchange(slot.owner, expected, mine)) return false;
  Step::At();
  const bool taken_over = OwnerState(seen) != SlotState::kLive;
  // The same process may have claimed the slot anew, after an exec, between the judgement and the
  // swap.
  if (!taken_over && !dead(static_cast<const LedgerSlot&>(slot), seen)) {
    expected = mine;
    CompareExchange(slot.owner, expected, seen);
    return false;
  }
  for (std::uint32_t c = 0; c < view.card_count(); ++c) {
    bool exact = !taken_over;
    std::uint64_t bytes = 0;
    for (const std::uint64_t& word : slot.cards[c].held) {
      const std::uint64_t value = Load(word);
      exact = exact && WordOps(value) == 0;
      bytes += WordBytes(value);
    }
    if (!exact) {
      Store(view.Card(c).recount_wanted, detail::RecountWish(seen, index));
    } else if (bytes != 0) {
      detail::TakeFromTotal<Step>(view.Card(c), bytes, Load(view.Card(c).total));
    }
    Step::At();
  }
  for (SlotCard& card : slot.cards) {
    for (std::uint64_t& word : card.held) Store(word, std::uint64_t{0});
  }
  for (SlotWork& work : slot.work) {
    Store(work.launched, std::uint64_t{0});
    Store(work.completed, std::uint64_t{0});
  }
  Store(slot.host_pid, std::uint32_t{0});
  Store(slot.hooks_active, std::uint32_t{0});
  Store(slot.pid_namespace, std::uint64_t{0});
  Store(slot.stack_start, std::uint64_t{0});
  Store(slot.image_random, std::uint64_t{0});
  Store(slot.life_lock, std::uint32_t{0});
  Store(slot.time_namespace, std::uint64_t{0});
  Step::At();
  Store(slot.owner, std::uint64_t{0});
  return true;
}

// Makes `total` the sum over live slots, if for one moment no charge is under way. False: try again
// later.
template <class Step = NoSteps>
bool Recount(const LedgerView& view, std::uint32_t card_index, int attempts = 8) {
  LedgerCard& card = view.Card(card_index);
  for (; attempts > 0; --attempts) {
    std::uint64_t wish = Load(card.recount_wanted);
    Step::At();
    std::uint64_t total = Load(card.total);
    const detail::Snapshot first = detail::Collect<Step>(view, card_index);
    if (!first.quiet) continue;
    // The version in `total` has 16 bits. A second look makes sure that not a multiple of 65,536
    // changes went by.
    const detail::Snapshot second = detail::Collect<Step>(view, card_index);
    if (!second.quiet || second.bytes != first.bytes || second.mix != first.mix) continue;
    Step::At();
    if (!CompareExchange(card.total, total, detail::NextWord(total, first.bytes))) continue;
    Step::At();
    if (wish != 0) CompareExchange(card.recount_wanted, wish, std::uint64_t{0});
    return true;
  }
  return false;
}

// Takes dead owners out of the books and recounts where that is wanted. Returns the slots freed.
template <class Step = NoSteps, typename Dead>
std::uint32_t Sweep(const LedgerView& view, std::uint64_t self, std::uint64_t now_ns, Dead&& dead) {
  std::uint32_t freed = 0;
  Store(view.header().last_sweep_ns, now_ns);
  for (std::uint32_t i = 0, n = view.SlotsInUse(); i < n; ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    if (owner == 0 || SameProcess(owner, self) || !dead(slot, owner)) continue;
    Step::At();
    if (Reap<Step>(view, i, owner, self, dead)) ++freed;
  }
  for (std::uint32_t c = 0; c < view.card_count(); ++c) {
    if (Load(view.Card(c).recount_wanted) != 0) Recount<Step>(view, c);
  }
  return freed;
}

inline bool SweepIsDue(const LedgerView& view, std::uint64_t now_ns, std::uint64_t every_ns) {
  const std::uint64_t last = Load(view.header().last_sweep_ns);
  return now_ns - last >= every_ns;  // a time in the future, from whoever wrote it, is due as well
}

struct ClaimInfo {
  std::uint64_t pid_namespace = 0;
  std::uint64_t time_namespace = 0;
  std::uint64_t stack_start = 0;
  std::uint64_t image_random = 0;
  std::uint32_t hooks_active = 0;
  char build_id[24] = {};
  char command[16] = {};
};

namespace detail {

// What an earlier program of this very process (before an exec), or an earlier process with its
// pid, has left behind.
template <class Step>
void TakeOver(const LedgerView& view, std::uint64_t self, const ClaimInfo& info) {
  const auto gone = [&](const LedgerSlot& slot, std::uint64_t owner) {
    const std::uint64_t space = Load(slot.pid_namespace);
    if (OwnerPid(owner) != OwnerPid(self)) return false;
    if (space != 0 && space != info.pid_namespace) return false;
    return !SameProcess(owner, self) || Load(slot.image_random) != info.image_random;
  };
  bool twin = false;  // another fence in this program, which may be reaping at this moment
  for (std::uint32_t i = 0, n = view.SlotsInUse(); i < n; ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    twin = twin || (owner == self && Load(slot.image_random) == info.image_random);
  }
  for (std::uint32_t i = 0, n = view.SlotsInUse(); i < n; ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    if (owner == 0 || OwnerPid(owner) != OwnerPid(self) || !gone(slot, owner)) continue;
    if (OwnerState(owner) != SlotState::kLive && twin) continue;
    Reap<Step>(view, i, owner, self, gone);
  }
}

template <class Step>
bool ClaimOne(const LedgerView& view, std::uint32_t i, std::uint64_t self, const ClaimInfo& info) {
  LedgerSlot& slot = view.Slot(i);
  std::uint64_t expected = 0;
  if (Load(slot.owner) != 0) return false;
  RaiseTo(view.header().slots_high, std::uint64_t{i} + 1);
  Step::At();
  if (!CompareExchange(slot.owner, expected, self)) return false;
  Step::At();
  Store(slot.pid_namespace, info.pid_namespace);
  Store(slot.time_namespace, info.time_namespace);
  Store(slot.image_random, info.image_random);
  Store(slot.stack_start, info.stack_start);
  Store(slot.hooks_active, info.hooks_active);
  for (unsigned k = 0; k < sizeof slot.build_id; ++k) Store(slot.build_id[k], info.build_id[k]);
  for (unsigned k = 0; k < sizeof slot.command; ++k) Store(slot.command[k], info.command[k]);
  Step::At();
  // A sweeper of another pid namespace may have judged the half-written slot. Then it is left to
  // it.
  return Load(slot.owner) == self;
}

}  // namespace detail

// How long ago somebody must have swept for a newcomer to do it. A sweep looks at every process of
// the slice: hundreds that start together would look at each other all the time, and nobody waits
// for them: who is about to be refused, asks for figures or finds no slot sweeps anyway.
inline constexpr std::uint64_t kClaimSweepNs = 100'000'000;

// A slot for the process `self` (state kLive), or -1 when all are in use by the living.
template <class Step = NoSteps, typename Dead>
int Claim(const LedgerView& view, std::uint64_t self, const ClaimInfo& info, std::uint64_t now_ns,
          Dead&& dead) {
  detail::TakeOver<Step>(view, self, info);
  if (SweepIsDue(view, now_ns, kClaimSweepNs)) Sweep<Step>(view, self, now_ns, dead);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (std::uint32_t i = 0; i < view.slot_count(); ++i) {
      if (detail::ClaimOne<Step>(view, i, self, info)) return static_cast<int>(i);
    }
    if (attempt == 0) Sweep<Step>(view, self, now_ns, dead);
  }
  FetchAdd(view.header().slots_refused, std::uint64_t{1});
  return -1;
}

}  // namespace tessera::contract
