// A charge that follows a figure of the driver (what a pool or the graphs of a card have reserved).
//
// Thread safety: Follow may run in several threads at once. Each reads the driver's figure after
// taking a number; a figure with a lower number than the last one that counted is dropped, since a
// change that it does not know is followed by a reading of its own. Invariant: the ledger holds
// exactly `charged()` bytes for this object, plus reservations of callers that are under way.
#pragma once

#include "charge/charge.h"
#include "memory/spin_lock.h"

namespace tessera::fence {

class Measured {
 public:
  std::uint64_t TakeNumber() {
    return __atomic_add_fetch(&next_, std::uint64_t{1}, __ATOMIC_ACQ_REL);
  }
  std::uint64_t charged() const { return __atomic_load_n(&charged_, __ATOMIC_RELAXED); }
  // Makes the charge `figure`, read after `number` was taken; `reserved` bytes have been charged
  // for this call already and go into it. False when the limit does not allow the growth: then only
  // `reserved` is given back, and the caller undoes what it did.
  bool Follow(int card, Kind kind, std::uint64_t number, std::uint64_t figure,
              std::uint64_t reserved) {
    std::uint64_t need = 0, spare = reserved;
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (!lock_.Lock()) break;
      const bool news = number > last_;
      const std::uint64_t growth = news && figure > charged_ ? figure - charged_ : 0;
      if (growth <= spare) {
        const std::uint64_t shrink = news && figure < charged_ ? charged_ - figure : 0;
        if (news) {
          last_ = number;
          __atomic_store_n(&charged_, figure, __ATOMIC_RELAXED);
        }
        lock_.Unlock();
        Refund(card, kind, spare - growth + shrink);
        return true;
      }
      lock_.Unlock();
      need = growth - spare;
      if (!Reserve(card, kind, need)) break;
      spare += need;
    }
    Refund(card, kind, spare);
    return false;
  }
  // The same for what cannot be undone: charged even above the limit.
  void FollowAlways(int card, Kind kind, std::uint64_t number, std::uint64_t figure) {
    if (!lock_.Lock()) return;
    std::uint64_t growth = 0, shrink = 0;
    if (number > last_) {
      last_ = number;
      if (figure > charged_) growth = figure - charged_;
      if (figure < charged_) shrink = charged_ - figure;
      __atomic_store_n(&charged_, figure, __ATOMIC_RELAXED);
    }
    lock_.Unlock();
    ChargeTaken(card, kind, growth);
    Refund(card, kind, shrink);
  }

 private:
  SpinLock lock_;
  std::uint64_t next_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t charged_ = 0;
};

}  // namespace tessera::fence
