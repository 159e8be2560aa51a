// Managed memory: hints about where it should be.
#pragma once

#include "sim/cuda/memory.h"

namespace tessera::sim {

// The allocation is about to go. MemoryLock held.
void ForgetManaged(const Range& range);

}  // namespace tessera::sim
