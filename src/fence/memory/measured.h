// A charge that follows a figure of the driver (what a pool or the graphs of a card have reserved).
//
// Thread safety: Follow may run in several threads at once. Each reads the driver's figure after
// taking a number; a figure with a lower number than the last one that counted is dropped, since a
// change that it does not know is followed by a reading of its own. A figure may hold what other
// callers were given whose own reading is still to come: it is paid from what those have reserved.
// Invariant: the ledger holds exactly charged_ + promised_ - borrowed_ bytes for this object.
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
  // `reserved` bytes have been charged for a call that is about to begin; Follow, FollowAlways or
  // Withdraw ends it with the same figure.
  void Promise(std::uint64_t reserved) {
    __atomic_add_fetch(&promised_, reserved, __ATOMIC_ACQ_REL);
  }
  // The call took nothing.
  void Withdraw(int card, Kind kind, std::uint64_t reserved) {
    if (reserved == 0) return;
    const bool locked = lock_.Lock();
    const std::uint64_t back = Repay(reserved, reserved);
    if (locked) lock_.Unlock();
    Refund(card, kind, back);
  }
  // Makes the charge `figure`, read after `number` was taken, and ends a call that has promised
  // `reserved` bytes. False when the limit does not allow the growth: then the caller undoes what
  // it did.
  bool Follow(int card, Kind kind, std::uint64_t number, std::uint64_t figure,
              std::uint64_t reserved) {
    std::uint64_t more = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (!lock_.Lock()) break;
      const Change change = ChangeTo(number, figure);
      const std::uint64_t at_hand = AtHand() + more;
      if (change.growth <= at_hand) {
        Note(number, figure);
        borrowed_ += change.growth;
        const std::uint64_t back = Repay(reserved + more + change.shrink, reserved);
        lock_.Unlock();
        Refund(card, kind, back);
        return true;
      }
      lock_.Unlock();
      const std::uint64_t need = change.growth - at_hand;
      if (!Reserve(card, kind, need)) break;
      more += need;
    }
    const bool locked = lock_.Lock();
    const std::uint64_t back = Repay(reserved + more, reserved);
    if (locked) lock_.Unlock();
    Refund(card, kind, back);
    return false;
  }
  // The same for what cannot be undone: charged even above the limit.
  void FollowAlways(int card, Kind kind, std::uint64_t number, std::uint64_t figure,
                    std::uint64_t reserved = 0) {
    if (!lock_.Lock()) {
      Withdraw(card, kind, reserved);
      return;
    }
    const Change change = ChangeTo(number, figure);
    const std::uint64_t at_hand = AtHand();
    const std::uint64_t paid = change.growth < at_hand ? change.growth : at_hand;
    Note(number, figure);
    borrowed_ += paid;
    const std::uint64_t back = Repay(reserved + change.shrink, reserved);
    lock_.Unlock();
    ChargeTaken(card, kind, change.growth - paid);
    Refund(card, kind, back);
  }

 private:
  struct Change {
    std::uint64_t growth = 0, shrink = 0;
  };
  Change ChangeTo(std::uint64_t number, std::uint64_t figure) const {
    if (number <= last_) return {};
    return figure > charged_ ? Change{figure - charged_, 0} : Change{0, charged_ - figure};
  }
  void Note(std::uint64_t number, std::uint64_t figure) {
    if (number <= last_) return;
    last_ = number;
    __atomic_store_n(&charged_, figure, __ATOMIC_RELAXED);
  }
  // What calls that are under way have reserved and no figure has used yet.
  std::uint64_t AtHand() const {
    const std::uint64_t promised = __atomic_load_n(&promised_, __ATOMIC_ACQUIRE);
    return promised > borrowed_ ? promised - borrowed_ : 0;
  }
  // `bytes` are no longer needed by this caller, whose promise ends: what others lent is theirs
  // again, the rest is to be refunded.
  std::uint64_t Repay(std::uint64_t bytes, std::uint64_t promise) {
    __atomic_sub_fetch(&promised_, promise, __ATOMIC_ACQ_REL);
    const std::uint64_t lent = bytes < borrowed_ ? bytes : borrowed_;
    borrowed_ -= lent;
    return bytes - lent;
  }

  SpinLock lock_;
  std::uint64_t next_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t charged_ = 0;
  std::uint64_t promised_ = 0;  // atomic
  std::uint64_t borrowed_ = 0;
};

}  // namespace tessera::fence
