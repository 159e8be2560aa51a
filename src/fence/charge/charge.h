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

namespace detail {
inline contract::LedgerCard& Book(int card) {
  return TheSlice().ledger.Card(static_cast<std::uint32_t>(card));
}
inline std::uint64_t Limit(int card) {
  return TheSlice().policy.LimitBytes(static_cast<std::uint32_t>(card));
}
// Once more, after dead processes and idle pools are out of the books.
bool ReserveAfterSweep(int card, Kind kind, std::uint64_t bytes);
}  // namespace detail

// False when the limit does not allow it, now that dead processes and idle pools are out of the
// books. Counts no denial.
inline bool Reserve(int card, Kind kind, std::uint64_t bytes) {
  if (card < 0) return false;
  contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card));
  if (slot == nullptr) return false;
  if (contract::Charge(detail::Book(card), *slot, kind, bytes, detail::Limit(card))) return true;
  return detail::ReserveAfterSweep(card, kind, bytes);
}
// Undoes a Reserve, or gives back what was charged.
inline void Refund(int card, Kind kind, std::uint64_t bytes) {
  if (card < 0 || bytes == 0) return;
  if (contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card)); slot != nullptr) {
    contract::Release(detail::Book(card), *slot, kind, bytes);
  }
}
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
// What this process holds as `kind`.
std::uint64_t OwnBytes(int card, Kind kind);

// Asked before a charge is refused and when figures are asked: makes the books follow what the
// driver has given back by itself. Registered once by the pools.
void OnPressure(void (*settle)(int card));

}  // namespace tessera::fence
