// Any bytes as a ledger: opening, sums, sweeps and charges stay inside the mapping and end.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "contract/ledger_ops.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace c = tessera::contract;
  if (size < 1) return 0;
  const bool repaired = data[0] & 1;  // half of the inputs get a header that lets them through
  std::size_t bytes = size - 1;
  if (repaired && bytes < sizeof(c::LedgerHeader)) bytes = sizeof(c::LedgerHeader);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  std::memset(memory, 0, bytes);
  std::memcpy(memory, data + 1, size - 1);
  if (repaired) {
    auto& h = *reinterpret_cast<c::LedgerHeader*>(memory);
    h.magic = c::kLedgerMagic;
    h.layout = c::kLedgerLayout;
    h.kinds = c::kKinds;
    h.file_bytes = static_cast<std::uint32_t>(bytes);
  }
  c::LedgerView view;
  if (c::OpenLedger(memory, bytes, &view).field == nullptr) {
    const auto dead = [](const c::LedgerSlot&, std::uint64_t owner) { return owner % 3 == 0; };
    const std::uint64_t self = c::MakeOwner(5, 5, c::SlotState::kLive);
    c::IsValid(view);
    c::SumLive(view, 0, [](const c::LedgerSlot&, std::uint64_t) { return true; });
    const int slot = c::Claim(view, self, {}, 0, dead);
    if (slot >= 0) {
      if (c::Charge(view.Card(0), view.Slot(slot).cards[0], c::Kind::kVmm, 4096, 1 << 20)) {
        c::Release(view.Card(0), view.Slot(slot).cards[0], c::Kind::kVmm, 4096);
      }
    }
    c::Sweep(view, self, 1, dead);
  }
  std::free(memory);
  return 0;
}
