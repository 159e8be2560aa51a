// `tessera-sim inject`: what goes wrong, by words that people type.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tessera::sim {

// The result code for a call: a number, or a name of cuda.h ("CUDA_ERROR_OUT_OF_MEMORY",
// "OUT_OF_MEMORY") or nvml.h ("NVML_ERROR_GPU_IS_LOST", "GPU_IS_LOST"), by the call's prefix.
Result<int> ParseResult(const std::string& call, const std::string& text);

// Throttle reasons as a sum: "power", "thermal", "hw-thermal", "power-brake", "hw-slowdown",
// "none", with commas.
Result<std::uint64_t> ParseThrottle(const std::string& text);

}  // namespace tessera::sim
