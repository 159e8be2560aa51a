// Physical memory handles (cuMemCreate): what mappings are made of.
//
// All physical memory of a process lies in one sparse file, so thousands of handles need no
// thousands of descriptors; a handle that is exported moves into a file of its own, which then
// lives as long as anybody has it open.
//
// Thread safety: functions are called with MemoryLock held.
// Invariants:
//   1. Memory lives, and its card is charged, until the last handle reference and the last mapping
//      are gone.
//   2. Imported memory is charged to its maker only: until the last descriptor is closed and the
//      last importer has released it, as cuMemExportToShareableHandle documents. The maker notices
//      that at its next call here.
#pragma once

#include <cstdint>
#include <set>

#include "sim/cuda/memory.h"

namespace tessera::sim {

struct Physical;

// Bytes [base, base + size) show `memory` from `offset` on.
struct Mapping {
  std::uint64_t base = 0, size = 0, offset = 0;
  Physical* memory = nullptr;
  int access[kMaxCards] = {};  // CUmemAccess_flags by card
  int host_access = 0;
};

struct Physical {
  static constexpr HandleKind kKind = HandleKind::kAllocation;
  using Handle = CUmemGenericAllocationHandle;

  CUmemGenericAllocationHandle handle{};  // 0 while no reference to it is left
  CUmemAllocationProp properties{};
  int card = -1;  // -1: host memory
  std::uint64_t size = 0, id = 0, offset = 0;
  int file = -1;
  bool own_file = false, imported = false;
  std::uint8_t dirty = 0;
  unsigned references = 0, uses = 0;  // of the handle; mappings, sparse tiles, multicast bindings
  std::set<Mapping*> mappings;
};

// New memory with one reference. Charges the card.
CUresult MakePhysical(const CUmemAllocationProp& properties, int card, std::uint64_t size,
                      Physical** made);
// Memory that another process exported.
CUresult ImportPhysical(int descriptor, Physical** made);
// A descriptor for other processes.
CUresult ExportPhysical(Physical& memory, int* descriptor);
// Gives up one reference or use; frees the memory with the last.
void DropReference(Physical& memory);
void DropUse(Physical& memory);
// Frees exported memory that nobody holds any more.
void SweepExports();

// Shows the mapping's memory at its place with the access that it has.
bool ShowMapping(const Mapping& mapping);

// Device or host location: card in `*card` (-1 host); false when it is none.
bool CardOfLocation(const CUmemLocation& location, int* card);

// Costs that the node states for a call on `bytes`, if it charges host time at all. Without
// MemoryLock.
void SpendHostTime(std::uint64_t ns_per_block, std::uint64_t bytes);

}  // namespace tessera::sim
