// A checked way into a mapped ledger, the owner word, and the sums that a reader may trust.
//
//   LedgerView view; LayoutFault fault = OpenLedger(mapping, mapped_bytes, &view);
//   if (fault.field != nullptr) refuse(fault.field, fault.value, fault.legal);
//   view.Slot(i).cards[card] ...
//
// Thread safety: a view is plain data; words are read with contract/atomics.h.
// Invariants:
//   1. A view never leads outside [mapping, mapping + mapped_bytes): offsets and strides are
//   checked
//      once and copied, the header's fields are never read again.
//   2. Nothing that a tenant may have written is followed as a pointer or used as an index
//   unchecked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/atomics.h"
#include "contract/slice_layout.h"

namespace tessera::contract {

// What is wrong with a file, in the words that an error line needs. field == nullptr: nothing.
struct LayoutFault {
  const char* field = nullptr;
  std::uint64_t value = 0;
  const char* legal = nullptr;
};

inline constexpr std::uint64_t kOpsMask = (std::uint64_t{1} << kBytesShift) - 1;
inline constexpr std::uint64_t kMaxBytes =
    (std::uint64_t{1} << 48) - 1;  // 256 TiB: what a charge word can say
inline constexpr std::uint64_t kOwnerStateMask = (std::uint64_t{1} << kOwnerPidShift) - 1;
inline constexpr std::uint64_t kOwnerPidMask =
    (std::uint64_t{1} << (kOwnerStartShift - kOwnerPidShift)) - 1;

constexpr std::uint64_t MakeOwner(std::uint64_t pid, std::uint64_t start_ticks, SlotState state) {
  return start_ticks << kOwnerStartShift | (pid & kOwnerPidMask) << kOwnerPidShift |
         static_cast<std::uint64_t>(state);
}
constexpr std::uint32_t OwnerPid(std::uint64_t owner) {
  return static_cast<std::uint32_t>(owner >> kOwnerPidShift & kOwnerPidMask);
}
constexpr std::uint64_t OwnerStart(std::uint64_t owner) { return owner >> kOwnerStartShift; }
constexpr SlotState OwnerState(std::uint64_t owner) {
  return static_cast<SlotState>(owner & kOwnerStateMask);
}
// Same process, whatever it does with the slot.
constexpr bool SameProcess(std::uint64_t a, std::uint64_t b) {
  return ((a ^ b) & ~kOwnerStateMask) == 0;
}

constexpr std::uint64_t WordBytes(std::uint64_t word) { return word >> kBytesShift; }
constexpr std::uint64_t WordOps(std::uint64_t word) { return word & kOpsMask; }

class LedgerView {
 public:
  LedgerView() = default;
  LedgerView(std::byte* base, const LedgerHeader& h)
      : base_(base),
        cards_offset_(h.cards_offset),
        card_stride_(h.card_stride),
        slots_offset_(h.slots_offset),
        slot_stride_(h.slot_stride),
        card_count_(h.card_count),
        slot_count_(h.slot_count) {}

  bool ok() const { return base_ != nullptr; }
  std::uint32_t card_count() const { return card_count_; }
  std::uint32_t slot_count() const { return slot_count_; }
  LedgerHeader& header() const { return *reinterpret_cast<LedgerHeader*>(base_); }
  LedgerCard& Card(std::uint32_t i) const {
    return *reinterpret_cast<LedgerCard*>(base_ + cards_offset_ + std::size_t{i} * card_stride_);
  }
  // Where the slot starts in the file: the byte that its owner locks (LedgerSlot::life_lock).
  std::uint64_t SlotOffset(std::uint32_t i) const {
    return slots_offset_ + std::uint64_t{i} * slot_stride_;
  }
  LedgerSlot& Slot(std::uint32_t i) const {
    return *reinterpret_cast<LedgerSlot*>(base_ + slots_offset_ + std::size_t{i} * slot_stride_);
  }
  // Slots that may be in use: no loop over the ledger needs to look further.
  std::uint32_t SlotsInUse() const {
    const std::uint64_t high = Load(header().slots_high);
    return high < slot_count_ ? static_cast<std::uint32_t>(high) : slot_count_;
  }

 private:
  std::byte* base_ = nullptr;
  std::uint32_t cards_offset_ = 0, card_stride_ = 0, slots_offset_ = 0, slot_stride_ = 0;
  std::uint32_t card_count_ = 0, slot_count_ = 0;
};

// Checks a header against what the reader has mapped. Every later access stays inside
// `mapped_bytes`.
inline LayoutFault CheckLedger(const LedgerHeader& h, std::uint64_t mapped_bytes) {
  if (mapped_bytes < sizeof(LedgerHeader)) return {"size", mapped_bytes, "at least 512 bytes"};
  if (h.magic != kLedgerMagic) return {"magic", h.magic, "TSREDGR1"};
  if (h.layout != kLedgerLayout) return {"layout", h.layout, "1"};
  if (h.file_bytes > mapped_bytes) return {"file_bytes", h.file_bytes, "no more than the file has"};
  if (h.card_count < 1 || h.card_count > kMaxCards) return {"card_count", h.card_count, "1..16"};
  if (h.kinds != kKinds) return {"kinds", h.kinds, "8"};
  if (h.slot_count < 1 || h.slot_count > kMaxSlots) return {"slot_count", h.slot_count, "1..4096"};
  if (h.card_stride < sizeof(LedgerCard) || h.card_stride % 64 != 0) {
    return {"card_stride", h.card_stride, "at least 128, a multiple of 64"};
  }
  if (h.slot_stride < sizeof(LedgerSlot) || h.slot_stride % 64 != 0) {
    return {"slot_stride", h.slot_stride, "at least 1536, a multiple of 64"};
  }
  if (h.cards_offset < sizeof(LedgerHeader) || h.cards_offset % 64 != 0 ||
      h.cards_offset + std::uint64_t{h.card_stride} * h.card_count > h.file_bytes) {
    return {"cards_offset", h.cards_offset, "cards inside the file, aligned to 64"};
  }
  if (h.slots_offset < h.cards_offset + std::uint64_t{h.card_stride} * h.card_count ||
      h.slots_offset % 64 != 0 ||
      h.slots_offset + std::uint64_t{h.slot_stride} * h.slot_count > h.file_bytes) {
    return {"slots_offset", h.slots_offset,
            "slots behind the cards and inside the file, aligned to 64"};
  }
  return {};
}

inline LayoutFault OpenLedger(void* mapping, std::uint64_t mapped_bytes, LedgerView* view) {
  if (mapping == nullptr || mapped_bytes < sizeof(LedgerHeader)) {
    return {"size", mapped_bytes, "at least 512 bytes"};
  }
  LedgerHeader copy;  // checked and used from one copy: the owner may change the file meanwhile
  __builtin_memcpy(&copy, mapping, sizeof copy);
  if (const LayoutFault fault = CheckLedger(copy, mapped_bytes); fault.field != nullptr)
    return fault;
  *view = LedgerView(static_cast<std::byte*>(mapping), copy);
  return {};
}

// Writes the header of a new ledger into zeroed memory of sizeof(LedgerFile) bytes; the magic comes
// last.
inline void InitLedger(LedgerFile& file) {
  LedgerHeader& h = file.header;
  h.layout = kLedgerLayout;
  h.file_bytes = sizeof(LedgerFile);
  h.cards_offset = offsetof(LedgerFile, cards);
  h.card_stride = sizeof(LedgerCard);
  h.card_count = kMaxCards;
  h.slots_offset = offsetof(LedgerFile, slots);
  h.slot_stride = sizeof(LedgerSlot);
  h.slot_count = kMaxSlots;
  h.kinds = kKinds;
  Store(h.magic, kLedgerMagic);
}

inline std::uint64_t SlotBytes(const LedgerSlot& slot, std::uint32_t card) {
  std::uint64_t sum = 0;
  for (const std::uint64_t& word : slot.cards[card].held) sum += WordBytes(Load(word));
  return sum;
}

// What processes that are not given up hold on a card, with nothing assumed about who is alive:
// `counts(slot, owner)` says which slots to take in. Never more than kMaxBytes.
template <typename Counts>
std::uint64_t SumLive(const LedgerView& view, std::uint32_t card, Counts&& counts) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0, n = view.SlotsInUse(); i < n; ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    if (OwnerState(owner) != SlotState::kLive || !counts(slot, owner)) continue;
    sum += SlotBytes(slot, card);
    if (sum > kMaxBytes) return kMaxBytes;
  }
  return sum;
}

// The structure's validity at rest: no charge under way, every owner word legal, each card's total
// equal to the sum over live slots (or above it while a recount is wanted). For tests, fuzzers and
// debug builds.
inline bool IsValid(const LedgerView& view) {
  if (!view.ok()) return false;
  for (std::uint32_t i = 0; i < view.slot_count(); ++i) {
    const LedgerSlot& slot = view.Slot(i);
    const std::uint64_t owner = Load(slot.owner);
    if (owner != 0 && (OwnerPid(owner) == 0 || OwnerState(owner) == SlotState::kFree ||
                       OwnerState(owner) > SlotState::kReaping || i >= view.SlotsInUse())) {
      return false;
    }
    for (std::uint32_t c = 0; c < kMaxCards; ++c) {
      for (const std::uint64_t& word : slot.cards[c].held) {
        if (WordOps(Load(word)) != 0 || (owner == 0 && Load(word) != 0)) return false;
      }
    }
  }
  for (std::uint32_t c = 0; c < view.card_count(); ++c) {
    const std::uint64_t total = WordBytes(Load(view.Card(c).total));
    const std::uint64_t sum =
        SumLive(view, c, [](const LedgerSlot&, std::uint64_t) { return true; });
    if (total < sum || (total > sum && Load(view.Card(c).recount_wanted) == 0)) return false;
  }
  return true;
}

}  // namespace tessera::contract
