// Memory shared with other processes, and memory from outside.
#pragma once

#include "sim/cuda/memory.h"

namespace tessera::sim {

// All with MemoryLock held.
// The range is about to go: forgets what was exported of it.
void ForgetExport(Range& range);
// cuMemFree of a pointer inside an external memory buffer.
CUresult FreeMappedBuffer(Range& range, CUdeviceptr pointer);

}  // namespace tessera::sim
