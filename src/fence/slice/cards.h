// Which card of the slice a device of the driver is. Cards are known by their UUID, never by an
// index that an environment variable may shift.
//
// Thread safety: every function from any thread; answers are cached for the life of the process.
#pragma once

#include <cstdint>

#include "real.h"

namespace tessera::fence {

// A card of the slice is 0..card_count-1.
inline constexpr int kForeignCard =
    -1;  // the driver has it, the slice has not: nothing is granted on it
inline constexpr int kUnknownCard =
    -2;  // the driver does not say (not initialised, no such device): its own error will

int CardOfDevice(CUdevice device);
// As cuDeviceGetUuid_v2 and NVML's binary form give it. kForeignCard if the slice has no such card.
int CardOfUuid(const std::uint8_t (&uuid)[16]);

}  // namespace tessera::fence
