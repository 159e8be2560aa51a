// Multicast objects: one address range that writes to the memory of several cards. Small ones, for
// programs that probe them.
#pragma once

#include "sim/cuda/physical.h"

namespace tessera::sim {

// Both with MemoryLock held. Releases a multicast handle; false when the handle is not one (they
// share cuMemRelease with memory).
bool ReleaseMulticast(CUmemGenericAllocationHandle handle);
// What a mapping of a multicast handle shows: the memory bound first. nullptr when there is none or
// it is no such handle.
Physical* BoundMemory(CUmemGenericAllocationHandle handle);

}  // namespace tessera::sim
