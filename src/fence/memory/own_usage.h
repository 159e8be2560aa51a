// What the driver says this process holds on a card: the measure for contexts, code, device heaps
// and local memory, which no call asks for.
//
// Thread safety: every function from any thread. Neighbours' changes are never taken for ours: the
// figure of the own process counts; where there is none (NVML not loaded by the program, or
// processes hidden by a pid namespace), a difference of the card's free memory counts only if
// nothing else moved meanwhile and it is plausible.
#pragma once

#include <cstdint>

#include "memory/contexts.h"

namespace tessera::fence {

// Bytes of this process on the card, if the program has loaded NVML and the driver shows the
// process there.
bool OwnDriverBytes(int card, std::uint64_t* bytes);
// How much of that is not charged yet.
bool UnchargedBytes(int card, std::uint64_t* bytes);
// Makes kContext of the record what the driver says beyond everything else that was charged. False
// when it does not say.
bool SettleByDriver(int card, std::uint32_t record);
// What one context takes on the card, as far as it is known before one is made: from the policy,
// else as a process of this slice has measured it.
std::uint64_t ExpectedContextBytes(int card);
void RememberContextBytes(int card, std::uint64_t bytes);
// Measures it with one more context that is made and destroyed at once. `context` lives on
// `device`; what is current stays current.
std::uint64_t ProbeContextBytes(CUcontext context, CUdevice device);

// Free memory of the card before and after a call that takes an unknown amount in the current
// context.
class Growth {
 public:
  explicit Growth(const Place& place);
  // Bytes that the call took, at most `most`; 0 where it cannot be told from what neighbours did.
  std::uint64_t Measure(std::uint64_t most) const;
  // Whether the card has as much free as before.
  bool Unchanged() const;

 private:
  bool Free(std::uint64_t* bytes) const;
  Place place_;
  bool usable_ = false;
  std::uint64_t free_ = 0, slice_word_ = 0;
};

}  // namespace tessera::fence
