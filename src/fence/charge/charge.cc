#include "charge/charge.h"

namespace tessera::fence {
namespace {

constexpr std::uint64_t kSweepEveryNs = 100'000'000;
void (*g_settle)(int card) = nullptr;  // atomic

contract::LedgerCard& Book(int card) {
  return TheSlice().ledger.Card(static_cast<std::uint32_t>(card));
}

std::uint64_t Limit(int card) {
  return TheSlice().policy.LimitBytes(static_cast<std::uint32_t>(card));
}

void Settle(int card) {
  if (auto settle = __atomic_load_n(&g_settle, __ATOMIC_ACQUIRE); settle != nullptr) settle(card);
}

}  // namespace

bool Reserve(int card, Kind kind, std::uint64_t bytes) {
  if (card < 0) return false;
  contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card));
  if (slot == nullptr) return false;
  if (contract::Charge(Book(card), *slot, kind, bytes, Limit(card))) return true;
  if (bytes > Limit(card)) return false;
  Settle(card);
  SweepSlice(0);
  return contract::Charge(Book(card), *slot, kind, bytes, Limit(card));
}

void Refund(int card, Kind kind, std::uint64_t bytes) {
  if (card < 0 || bytes == 0) return;
  if (contract::SlotCard* slot = OwnSlot(static_cast<std::uint32_t>(card)); slot != nullptr) {
    contract::Release(Book(card), *slot, kind, bytes);
  }
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

bool IsFarFromLimit(int card, std::uint64_t bytes) {
  const std::uint64_t used = contract::WordBytes(contract::LoadRelaxed(Book(card).total)),
                      limit = Limit(card);
  return used < limit && limit - used >= bytes;
}

std::uint64_t OwnBytes(int card, Kind kind) {
  const contract::LedgerSlot* slot = OwnSlotOrNull();
  if (slot == nullptr || card < 0) return 0;
  return contract::WordBytes(
      contract::Load(slot->cards[card].held[static_cast<std::uint32_t>(kind)]));
}

void OnPressure(void (*settle)(int card)) { __atomic_store_n(&g_settle, settle, __ATOMIC_RELEASE); }

}  // namespace tessera::fence
