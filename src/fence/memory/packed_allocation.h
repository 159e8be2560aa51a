// An allocation in 63 bits, or together with its place in a block in 64.
#pragma once

#include <cstdint>

#include "contract/slice_layout.h"

namespace tessera::fence {

inline constexpr std::uint64_t kBlockShift = 21;
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << kBlockShift;

struct Allocation {
  std::uint64_t size = 0;   // bytes, below 2^44
  std::uint32_t owner = 0;  // context record or pool record, below 2^12; 0 = none
  std::uint32_t card = 0;   // below 16
  contract::Kind kind = contract::Kind::kLinear;
};
inline constexpr std::uint64_t kMaxAllocation = (std::uint64_t{1} << 44) - 1;
inline constexpr std::uint32_t kMaxOwners = 1u << 12;

// size | owner << 44 | card << 56 | kind << 60; bit 63 is never set.
using PackedAllocation = std::uint64_t;
inline constexpr PackedAllocation kNoAllocation = UINT64_MAX;

constexpr PackedAllocation Pack(const Allocation& a) {
  return a.size | std::uint64_t{a.owner} << 44 | std::uint64_t{a.card} << 56 |
         static_cast<std::uint64_t>(a.kind) << 60;
}
constexpr Allocation Unpack(PackedAllocation value) {
  return {value & kMaxAllocation, static_cast<std::uint32_t>(value >> 44 & (kMaxOwners - 1)),
          static_cast<std::uint32_t>(value >> 56 & 15),
          static_cast<contract::Kind>(value >> 60 & 7)};
}

// Where in its block an allocation begins, with bit 63: never 0.
using BlockPlace = std::uint64_t;
inline constexpr BlockPlace kPlaceMark = std::uint64_t{1} << 63;
inline constexpr BlockPlace kPlaceMask = kPlaceMark | (kBlockBytes - 1);

constexpr BlockPlace PlaceInBlock(std::uint64_t address) {
  return kPlaceMark | (address & (kBlockBytes - 1));
}

// Place and allocation in one word, where the size is below 2^23: place | size << 21 | owner, card
// and kind << 44.
inline constexpr unsigned kShortSizeBits = 23;
constexpr bool FitsOneWord(PackedAllocation value) {
  return (value & kMaxAllocation) >> kShortSizeBits == 0;
}
constexpr std::uint64_t JoinPlace(BlockPlace place, PackedAllocation value) {
  return place | (value & kMaxAllocation) << kBlockShift | (value & ~kMaxAllocation);
}
constexpr PackedAllocation WithoutPlace(std::uint64_t word) {
  const std::uint64_t upper = ~kMaxAllocation & ~kPlaceMark;
  return (word & kMaxAllocation) >> kBlockShift | (word & upper);
}
static_assert(kBlockShift + kShortSizeBits == 44, "what stands above the size keeps its place");

}  // namespace tessera::fence
