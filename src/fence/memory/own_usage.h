// Makes the books of this process equal what the driver has given it, where no call says how much
// that is: contexts, code, device heaps, arrays that share blocks.
//
//   Measurement measurement(place, most);   // before the books or the driver change
//   ... reserve an estimate, call the driver, keep the estimate ...
//   measurement.Finish();                   // what the estimate was off by is charged or given
//   back
//
// The driver's own figure for this process decides wherever neighbours can disturb anything else. A
// process that is alone in its slice compares the card's free memory before and after the call, and
// asks for its own figure only when that cannot be right. Where neither tells, the estimate stays
// and the card counts as unsettled: the next question for the figures, synchronisation or measured
// call tries again.
//
// Thread safety: every function from any thread; no lock is held across a driver call. A figure
// counts only if no other thread of this process was inside a call that changes what it holds
// (underway.h).
#pragma once

#include <cstdint>

#include "memory/contexts.h"
#include "memory/floating.h"
#include "memory/underway.h"

namespace tessera::fence {

enum class Settled {
  kExact,    // at one moment the ledger's figures for this process were what the driver says
  kBetween,  // the same as far as can be told while managed or imported memory is live
  kLater,    // another thread was in the way
  kUnknown,  // the driver does not say
};
// Nothing of the calling thread may be under way.
Settled SettleOwn(int card);

// Around what changes how much floating memory (memory/floating.h) this process holds, while `own`
// calls of the calling thread are under way: what is in doubt is settled before, since it cannot be
// told afterwards.
void BeforeFloating(int card, std::uint64_t own);
void AfterFloating(int card, std::uint64_t own);

// Something has changed that only SettleOwn can put right.
void MarkUnsettled(int card);
namespace detail {
extern std::uint32_t g_unsettled;     // atomic; a bit per card
extern std::uint32_t g_hidden_small;  // atomic; a bit per card
}  // namespace detail
inline bool AnyUnsettled() { return __atomic_load_n(&detail::g_unsettled, __ATOMIC_RELAXED) != 0; }
// From now on the driver may put things without a known address (small arrays, variables of
// modules) into the blocks that small requests share: who opens or closes such a block, and when,
// is settled by the driver's figure.
void NoteHiddenSmall(int card);
// A block of small requests was opened or closed.
inline void SmallBlockChanged(int card, bool closed);
// Settles what is unsettled; where threads keep being in the way, not more often than every 20 ms.
void SettleUnsettled();
// Before anything that was measured is given back: a figure that was corrected downwards is charged
// in full again, so that the books are never below what is held.
void BeforeGivingBack(int card);

inline void SmallBlockChanged(int card, bool closed) {
  if ((__atomic_load_n(&detail::g_hidden_small, __ATOMIC_RELAXED) >> card & 1) == 0) return;
  if (closed) BeforeGivingBack(card);
  NoteDoubt(card, std::uint64_t{1} << 21);  // the block
  MarkUnsettled(card);
}

// `more` bytes of a correction have found an owner, who gives them back.
void ForgetCorrection(int card, std::int64_t more);

// How much of what the driver says is not charged yet, if the program has loaded NVML and no
// managed or imported memory stands between.
bool UnchargedBytes(int card, std::uint64_t* bytes);
// What one context takes on the card, as far as it is known before one is made: from the policy,
// else as a process of this slice has measured it.
std::uint64_t ExpectedContextBytes(int card);
void RememberContextBytes(int card, std::uint64_t bytes);
// Measures it with one more context that is made and destroyed at once. `context` lives on
// `device`; what is current stays current.
std::uint64_t ProbeContextBytes(CUcontext context, CUdevice device);

// Free memory of the card before and after a call in the current context.
class Growth {
 public:
  explicit Growth(const Place& place);
  // Bytes that the card has less, negative where it has more. False where neighbours moved.
  bool Change(std::int64_t* bytes) const;
  // By how much the charges of this process have changed since.
  std::int64_t BooksChange() const;
  // Bytes that the call took, at most `most`; 0 where it cannot be told from what neighbours did.
  std::uint64_t Measure(std::uint64_t most) const;
  // Whether the card has as much free as before.
  bool Unchanged() const;

 private:
  bool Free(std::uint64_t* bytes) const;
  Place place_;
  bool usable_ = false;
  std::uint64_t free_ = 0, slice_bytes_ = 0, own_bytes_ = 0;
};

class Measurement {
 public:
  // `most`: a correction larger than this is a neighbour's doing.
  Measurement(const Place& place, std::uint64_t most);
  ~Measurement() { Finish(); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;
  // Bytes by which the books were corrected.
  std::int64_t Finish();

 private:
  std::int64_t ByGrowth();

  const Place place_;
  const std::uint64_t most_;
  const bool ask_;
  Underway underway_;
  const UnderwaySum before_;
  const bool compared_;  // the books were compared at the beginning
  const Growth growth_;
  bool done_ = false;
};

// Whether the slice holds more than its limit now.
bool OverLimit(int card);

}  // namespace tessera::fence
