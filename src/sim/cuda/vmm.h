// Virtual memory management: reservations, physical handles, mappings.
#pragma once

#include "sim/cuda/memory.h"

namespace tessera::sim {

// With MemoryLock held: the mapping of a reservation that holds the address.
bool FindMapping(Range& reservation, std::uint64_t address, PointerInfo* info);

}  // namespace tessera::sim
