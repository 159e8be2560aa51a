// External semaphores on streams, for their own functions and for graph nodes.
#pragma once

#include <vector>

#include "sim/cuda/stream.h"

namespace tessera::sim {

CUresult SignalSemaphores(Stream& stream, const std::vector<CUexternalSemaphore>& semaphores,
                          const std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>& params);
CUresult WaitForSemaphores(Stream& stream, const std::vector<CUexternalSemaphore>& semaphores,
                           const std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>& params);

}  // namespace tessera::sim
