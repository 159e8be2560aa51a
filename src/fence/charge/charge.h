// Charging a card of the slice for this process: what the limit allows, with the dead swept away
// before anything is refused.
//
// Thread safety: every function from any thread. No lock is held on return; Reserve may make driver
// calls when it is about to refuse (pools give back what they hold in vain), so no lock may be held
// by the caller. Units: bytes that the driver takes, not bytes that the program asked for.
#pragma once

#include <cstdint>

#include "slice/slice.h"

namespace tessera::fence {

using contract::Kind;

// False when the limit does not allow it, now that dead processes and idle pools are out of the
// books. Counts no denial.
bool Reserve(int card, Kind kind, std::uint64_t bytes);
// Undoes a Reserve, or gives back what was charged.
void Refund(int card, Kind kind, std::uint64_t bytes);
// For what the driver has taken already.
void ChargeTaken(int card, Kind kind, std::uint64_t bytes);
// A request of the program that is refused.
void CountDenial(int card, std::uint64_t bytes);

struct Figures {
  std::uint64_t limit = 0;
  std::uint64_t used = 0;
};
// What the slice may hold and holds on a card; dead processes leave the figure within 100 ms.
Figures CardFigures(int card);
// The same at this moment: after a sweep.
Figures CardFiguresNow(int card);
// Whether at least `bytes` more would be granted at this moment.
bool IsFarFromLimit(int card, std::uint64_t bytes);
// What this process holds as `kind`.
std::uint64_t OwnBytes(int card, Kind kind);

// Asked before a charge is refused and when figures are asked: makes the books follow what the
// driver has given back by itself. Registered once by the pools.
void OnPressure(void (*settle)(int card));

}  // namespace tessera::fence
