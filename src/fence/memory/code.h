// What loading code has in common, be it by module or by library.
#pragma once

#include <cstdint>

#include "memory/image_size.h"
#include "memory/live.h"
#include "memory/own_usage.h"
#include "real.h"

namespace tessera::fence {

// 0.0 where the driver does not say.
Capability CapabilityOf(CUdevice device);
// What a file's code needs on the device; 0 where it cannot be read.
std::uint64_t FileNeed(const char* path, CUdevice device);

// A neighbour's doing, if a load seems to differ by more from what the image says.
inline std::uint64_t MostOff(std::uint64_t need) { return need + (std::uint64_t{64} << 20); }

// Code and variables may lie in blocks that are there.
inline constexpr std::uint64_t kSharedBlocks = 2 * kBlockBytes;

// While floating memory is live, what code was charged beyond its image cannot be told apart from
// it when the code goes: it is remembered.
void AdoptCorrection(std::uint64_t key, int card, std::int64_t more);

}  // namespace tessera::fence
