#include "charge/charge.h"

namespace tessera::fence {
namespace {

using detail::Book;
using detail::Limit;

constexpr std::uint64_t kSweepEveryNs = 100'000'000;
void (*g_settle)(int card) = nullptr;  // atomic

void Settle(int card) {
  if (auto settle = __atomic_load_n(&g_settle, __ATOMIC_ACQUIRE); settle != nullptr) settle(card);
}

}  // namespace

bool detail::ReserveAfterSweep(int card, Kind kind, std::uint64_t bytes) {
  if (bytes > Limit(card)) return false;
  Settle(card);
  SweepSlice(0);
  contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card));
  return slot != nullptr && contract::Charge(Book(card), *slot, kind, bytes, Limit(card));
}

void ChargeTaken(int card, Kind kind, std::uint64_t bytes) {
  if (card < 0 || bytes == 0) return;
  if (contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card)); slot != nullptr) {
    contract::ChargeAlways(Book(card), *slot, kind, bytes);
  }
}

void CountDenial(int card, std::uint64_t bytes) {
  if (card >= 0) contract::CountDenied(Book(card), bytes);
}

Figures CardFigures(int card) {
  SweepSlice(kSweepEveryNs);
  return {Limit(card), contract::WordBytes(contract::Load(Book(card).total))};
}

Figures CardFiguresNow(int card) {
  Settle(card);
  SweepSlice(0);
  return {Limit(card), contract::WordBytes(contract::Load(Book(card).total))};
}

std::uint64_t OwnBytes(int card, Kind kind) {
  const contract::LedgerSlot* slot = OwnSlotOrNull();
  if (slot == nullptr || card < 0) return 0;
  return contract::WordBytes(
      contract::Load(slot->cards[card].held[static_cast<std::uint32_t>(kind)]));
}

void OnPressure(void (*settle)(int card)) { __atomic_store_n(&g_settle, settle, __ATOMIC_RELEASE); }

}  // namespace tessera::fence
