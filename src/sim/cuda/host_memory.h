// Pinned host memory: allocated by the driver or registered by the program.
#pragma once

#include "sim/cuda/memory.h"

namespace tessera::sim {

// Both with MemoryLock held.
bool FindHostPointer(std::uint64_t address, PointerInfo* info);
bool OverlapsHostMemory(std::uint64_t base, std::uint64_t bytes);

// Frees what the context allocated and forgets what it registered.
void EndHostMemoryOf(Context& context);

}  // namespace tessera::sim
