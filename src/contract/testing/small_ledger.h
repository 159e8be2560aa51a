// A ledger of a few slots in zeroed memory, valid for the same code as a real one and quick to
// reset.
#pragma once

#include <cstring>
#include <memory>

#include "contract/ledger_ops.h"

namespace tessera::contract::testing {

class SmallLedger {
 public:
  explicit SmallLedger(std::uint32_t slots) : slots_(slots) {
    const std::size_t bytes = offsetof(LedgerFile, slots) + slots * sizeof(LedgerSlot);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
    bytes_ = bytes;
    Reset();
  }
  void Reset() {
    std::memset(memory_.get(), 0, bytes_);
    LedgerHeader& h = *reinterpret_cast<LedgerHeader*>(memory_.get());
    h.magic = kLedgerMagic;
    h.layout = kLedgerLayout;
    h.file_bytes = static_cast<std::uint32_t>(bytes_);
    h.cards_offset = offsetof(LedgerFile, cards);
    h.card_stride = sizeof(LedgerCard);
    h.card_count = 1;
    h.slots_offset = offsetof(LedgerFile, slots);
    h.slot_stride = sizeof(LedgerSlot);
    h.slot_count = slots_;
    h.kinds = kKinds;
    OpenLedger(memory_.get(), bytes_, &view_);
  }
  const LedgerView& view() const { return view_; }
  LedgerCard& card() const { return view_.Card(0); }
  SlotCard& slot(std::uint32_t i) const { return view_.Slot(i).cards[0]; }
  std::uint64_t total() const { return WordBytes(Load(card().total)); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::uint32_t slots_;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
  LedgerView view_;
};

}  // namespace tessera::contract::testing
