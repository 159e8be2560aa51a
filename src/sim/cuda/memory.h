// Memory that programs hold: allocation, and what is known of an address.
//
// Thread safety: all functions may be called from any thread; those that say so need MemoryLock.
// Units: bytes. What a card is charged are whole blocks of 2 MiB.
#pragma once

#include <cstdint>

#include "sim/cuda/address_space.h"
#include "sim/cuda/small_blocks.h"

namespace tessera::sim {

// What a context holds; hangs on Context::memory. Guarded by MemoryLock.
struct ContextMemory {
  BlockBuckets buckets{};
  Range* first = nullptr;
};

struct Mapping;

// Memory that a pointer leads to.
struct PointerInfo {
  std::uint64_t base = 0, size = 0;  // the allocation
  bool host = false;                 // pinned host memory
  bool managed = false;
  int card = -1;
  Context* context = nullptr;
  std::uint64_t id = 0;
  Range* range = nullptr;         // of device memory
  unsigned host_flags = 0;        // CU_MEMHOSTALLOC_* / CU_MEMHOSTREGISTER_*
  std::uint8_t* dirty = nullptr;  // of a small allocation or pool allocation
  CUmemoryPool pool{};
  Mapping* mapping = nullptr;  // of virtual memory management (physical.h)
  bool readable = true, writable = true;
};

// False when nothing that the driver gave out holds the address.
bool FindPointer(std::uint64_t address, PointerInfo* info);
// The same with MemoryLock held.
bool FindPointerLocked(std::uint64_t address, PointerInfo* info);
// Notes that bytes at the address are written by other than a copy of this file's callers (a host
// function behind a kernel).
void NoteWritten(std::uint64_t address, std::uint64_t bytes);
// From now on all memory counts as written: code of the host works on device addresses directly.
void NoteUntrackedWrites();
bool UntrackedWrites();

// Takes and gives back memory as cuMemAlloc and cuMemFree do, for other parts (globals of modules,
// arrays).
CUresult AllocateDevice(Context& context, std::uint64_t bytes, CUdeviceptr* pointer);
CUresult FreeDevice(CUdeviceptr pointer);

// Ends a range that is not charged here (imported, mapped): takes it off its context and deletes
// it. MemoryLock held.
void EndImported(Range& range);

// Links a range to the context that it ends with. MemoryLock held.
void AttachRange(Context& context, Range& range);
void DetachRange(Range& range);

}  // namespace tessera::sim
