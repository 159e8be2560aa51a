// Which cards CUDA shows: the slice's, filtered by the program's own CUDA_VISIBLE_DEVICES.
//
// The driver applies the variable to both sides of the runtime's integrity check, so a card is
// hidden by the variable and in no other way. UUIDs are written, never indices: an index means
// another card under CUDA_DEVICE_ORDER.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::fence {

struct VisibleCard {
  std::uint8_t uuid[16];
  bool is_mig;
};

inline constexpr std::size_t kUuidTextBytes = 40;  // "GPU-" + 36

// "GPU-6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", or "MIG-...". Not NUL-terminated.
void WriteUuid(const VisibleCard& card, std::span<char, kUuidTextBytes> text);

// The value to give the driver, written into `text` (kUuidTextBytes + 1 bytes a card are enough),
// "-1" if no card is left. `wanted` is the program's own value, nullptr if unset. As in the driver:
// entries are indices (here within the slice) or beginnings of UUIDs that fit one card only; the
// list ends before the first entry that is neither; a card named twice gives none.
std::string_view VisibleDevices(std::span<const VisibleCard> cards, const char* wanted,
                                std::span<char> text);

}  // namespace tessera::fence
