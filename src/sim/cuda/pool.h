// Memory pools: stream-ordered allocation from memory that stays with the pool until it is trimmed.
//
// A pool takes memory from the card in chunks of 32 MiB (or, for larger requests and when the card
// is nearly full, of whole 2 MiB blocks) and gives whole chunks back: when trimmed, or at a
// synchronisation while it holds more than its release threshold.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "sim/cuda/memory.h"

namespace tessera::sim {

struct Pool;

struct PoolPiece {
  std::uint64_t size;  // as asked for
  std::uint64_t bytes;
  std::uint64_t id;
  std::uint8_t dirty;
  bool freed;  // a free is on its way through a stream
};

struct PoolChunk : Range {
  Pool* pool = nullptr;
  int file = -1;                                        // of a pool that can be exported
  std::map<std::uint64_t, PoolPiece> pieces;            // by address
  std::map<std::uint64_t, std::uint64_t> free_by_base;  // base -> bytes
};

struct Pool {
  static constexpr HandleKind kKind = HandleKind::kPool;
  using Handle = CUmemoryPool;

  CUmemoryPool handle{};
  CUmemPoolProps properties{};
  int card = -1;  // -1: in host memory
  bool is_default = false;
  bool imported = false;
  bool destroyed = false;  // handle gone, ends with its last allocation

  // Guarded by MemoryLock.
  std::set<PoolChunk*> chunks;
  std::set<std::pair<std::uint64_t, std::pair<std::uint64_t, PoolChunk*>>>
      free_by_size;  // bytes, base, chunk
  std::uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0, threshold = 0;
  int reuse[3] = {1, 1, 1};    // CU_MEMPOOL_ATTR_REUSE_*: stored
  int access[kMaxCards] = {};  // CUmemAccess_flags by card
};

// The pool that allocations on this device use, and its default one.
Pool* CurrentPool(const Device& device);
Pool* DefaultPool(const Device& device);

void SetCurrentPool(const Device& device, Pool& pool);
// The pool is current nowhere from now on: its devices use their default ones again.
void ForgetCurrentPool(Pool& pool);

CUresult AllocateFromPool(Pool& pool, std::uint64_t bytes, CUdeviceptr* pointer);

// With MemoryLock held, these and the next two: gives empty chunks back until no more than `keep`
// is reserved; ends a pool that is destroyed and holds nothing any more.
void TrimPool(Pool& pool, std::uint64_t keep);
void EndPoolIfDone(Pool& pool);

bool FindPoolPointer(Range& chunk, std::uint64_t address, PointerInfo* info);
CUresult FreePoolPointer(Range& chunk, CUdeviceptr pointer);

// A synchronisation of the card's work: memory that pools hold above their release threshold goes
// back.
void TrimPoolsAtSynchronize(int card);

// A primary context ends: the card's pools lose their memory.
void EndPoolsOf(Context& context);

}  // namespace tessera::sim
