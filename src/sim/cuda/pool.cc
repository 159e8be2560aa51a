#include "sim/cuda/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kPieceAlignment = 512;

constinit std::atomic<Pool*> default_pools[kMaxCards] = {};
constinit std::atomic<Pool*> current_pools[kMaxCards] = {};
constinit std::atomic<int> pools_in_use{
    0};  // pools that ever held memory: synchronising costs one load without

void AddFree(Pool& pool, PoolChunk& chunk, std::uint64_t base, std::uint64_t bytes) {
  auto next = chunk.free_by_base.lower_bound(base);
  if (next != chunk.free_by_base.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == base) {
      base = before->first;
      bytes += before->second;
      pool.free_by_size.erase({before->second, {before->first, &chunk}});
      chunk.free_by_base.erase(before);
    }
  }
  if (next != chunk.free_by_base.end() && base + bytes == next->first) {
    bytes += next->second;
    pool.free_by_size.erase({next->second, {next->first, &chunk}});
    chunk.free_by_base.erase(next);
  }
  chunk.free_by_base.emplace(base, bytes);
  pool.free_by_size.insert({bytes, {base, &chunk}});
}

bool Exportable(const Pool& pool) {
  return pool.properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// Backs the addresses with a file that other processes can map.
bool BackWithFile(PoolChunk& chunk) {
  chunk.file = memfd_create("tessera-sim-pool", MFD_CLOEXEC);
  if (chunk.file < 0 || ftruncate(chunk.file, static_cast<off_t>(chunk.bytes)) != 0) return false;
  chunk.shared = true;
  return mmap(reinterpret_cast<void*>(chunk.base), chunk.bytes, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, chunk.file, 0) != MAP_FAILED;
}

void EndChunk(Pool& pool, PoolChunk& chunk) {
  WithdrawRange(chunk);
  for (const auto& [base, bytes] : chunk.free_by_base)
    pool.free_by_size.erase({bytes, {base, &chunk}});
  const bool live_writes = std::any_of(chunk.pieces.begin(), chunk.pieces.end(),
                                       [](const auto& p) { return p.second.dirty; });
  if (!chunk.shared && (live_writes || UntrackedWrites())) ClearBytes(chunk.base, chunk.bytes);
  GiveAddresses(chunk.base, chunk.bytes, chunk.shared);
  if (chunk.file >= 0) close(chunk.file);
  for (const auto& [base, piece] : chunk.pieces) pool.used -= piece.bytes;
  pool.reserved -= chunk.bytes;
  pool.chunks.erase(&chunk);
  if (pool.card >= 0) UnchargeCard(pool.card, chunk.bytes);
  delete &chunk;
}

PoolChunk* Grow(Pool& pool, std::uint64_t bytes) {
  const std::uint64_t limit = pool.properties.maxSize;
  if (limit && (pool.reserved + bytes > RoundUp(limit, kUnit))) return nullptr;
  if (pool.card >= 0 && !ChargeCard(pool.card, bytes)) return nullptr;
  auto* chunk = new (std::nothrow) PoolChunk;
  const std::uint64_t base = chunk ? TakeAddresses(bytes) : 0;
  if (base) {
    chunk->kind = RangeKind::kPoolChunk;
    chunk->card = pool.card;
    chunk->base = base;
    chunk->bytes = chunk->size = bytes;
    chunk->pool = &pool;
    if (!Exportable(pool) || BackWithFile(*chunk)) {
      PublishRange(*chunk);
      pool.chunks.insert(chunk);
      pool.reserved += bytes;
      pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
      AddFree(pool, *chunk, base, bytes);
      pools_in_use.store(1, std::memory_order_relaxed);
      return chunk;
    }
    if (chunk->file >= 0) close(chunk->file);
    GiveAddresses(base, bytes, true);
  }
  delete chunk;
  if (pool.card >= 0) UnchargeCard(pool.card, bytes);
  return nullptr;
}

CUdeviceptr TakePiece(Pool& pool, std::uint64_t size) {
  const std::uint64_t bytes = RoundUp(size, kPieceAlignment);
  const auto found = pool.free_by_size.lower_bound({bytes, {0, nullptr}});
  if (found == pool.free_by_size.end()) return 0;
  const std::uint64_t free_bytes = found->first, base = found->second.first;
  PoolChunk& chunk = *found->second.second;
  pool.free_by_size.erase(found);
  chunk.free_by_base.erase(base);
  if (free_bytes > bytes) {
    chunk.free_by_base.emplace(base + bytes, free_bytes - bytes);
    pool.free_by_size.insert({free_bytes - bytes, {base + bytes, &chunk}});
  }
  chunk.pieces.emplace(base, PoolPiece{size, bytes, NextBufferId(), 0, false});
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  return base;
}

}  // namespace

void TrimPool(Pool& pool, std::uint64_t keep) {
  for (auto it = pool.chunks.begin(); it != pool.chunks.end() && pool.reserved > keep;) {
    PoolChunk& chunk = **it++;
    if (chunk.pieces.empty()) EndChunk(pool, chunk);
  }
}

void EndPoolIfDone(Pool& pool) {
  if (!pool.destroyed || pool.used) return;
  TrimPool(pool, 0);
  delete &pool;
}

Pool* DefaultPool(const Device& device) {
  Pool* pool = default_pools[device.ordinal].load(std::memory_order_acquire);
  if (pool) return pool;
  MemoryLock lock;
  if ((pool = default_pools[device.ordinal].load())) return pool;
  pool = new Pool;
  pool->card = device.card;
  pool->is_default = true;
  pool->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
  pool->access[device.card] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  pool->handle = NewHandle(pool);
  default_pools[device.ordinal].store(pool, std::memory_order_release);
  return pool;
}

Pool* CurrentPool(const Device& device) {
  Pool* pool = current_pools[device.ordinal].load(std::memory_order_acquire);
  return pool ? pool : DefaultPool(device);
}

void SetCurrentPool(const Device& device, Pool& pool) {
  current_pools[device.ordinal] = pool.is_default ? nullptr : &pool;
}

void ForgetCurrentPool(Pool& pool) {
  for (std::atomic<Pool*>& current : current_pools) {
    Pool* expected = &pool;
    current.compare_exchange_strong(expected, nullptr);
  }
}

CUresult AllocateFromPool(Pool& pool, std::uint64_t bytes, CUdeviceptr* pointer) {
  if (bytes == 0 || pool.imported) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > (std::uint64_t{1} << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryLock lock;
  CUdeviceptr taken = TakePiece(pool, bytes);
  for (int step = 0; !taken && step < 4; ++step) {
    // In turn: a usual chunk, one of the least size, the same after giving back what this pool does
    // not use.
    if (step == 2) TrimPool(pool, 0);
    if (Grow(pool, step % 2 == 0 ? RoundUp(bytes, kChunkBytes) : RoundUp(bytes, kUnit)))
      taken = TakePiece(pool, bytes);
  }
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = taken;
  return CUDA_SUCCESS;
}

bool FindPoolPointer(Range& range, std::uint64_t address, PointerInfo* info) {
  auto& chunk = static_cast<PoolChunk&>(range);
  auto it = chunk.pieces.upper_bound(address);
  if (it == chunk.pieces.begin()) return false;
  --it;
  PoolPiece& piece = it->second;
  if (address - it->first >= piece.size) return false;
  info->base = it->first;
  info->size = piece.size;
  info->id = piece.id;
  info->dirty = &piece.dirty;
  info->pool = chunk.pool->handle;
  return true;
}

CUresult FreePoolPointer(Range& range, CUdeviceptr pointer) {
  auto& chunk = static_cast<PoolChunk&>(range);
  const auto it = chunk.pieces.find(pointer);
  if (it == chunk.pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  const PoolPiece piece = it->second;
  if (piece.dirty || UntrackedWrites()) {
    if (chunk.shared)
      std::memset(reinterpret_cast<void*>(pointer), 0, piece.bytes);
    else
      ClearBytes(pointer, piece.bytes);
  }
  Pool& pool = *chunk.pool;
  chunk.pieces.erase(it);
  pool.used -= piece.bytes;
  AddFree(pool, chunk, pointer, piece.bytes);
  EndPoolIfDone(pool);
  return CUDA_SUCCESS;
}

void TrimPoolsAtSynchronize(int card) {
  if (!pools_in_use.load(std::memory_order_relaxed)) return;
  MemoryLock lock;
  ForEach<Pool>([&](Pool* pool) {
    if (pool->card == card && pool->reserved > pool->threshold) TrimPool(*pool, pool->threshold);
  });
}

void EndPoolsOf(Context& context) {
  if (!context.primary || !pools_in_use.load(std::memory_order_relaxed)) return;
  MemoryLock lock;
  ForEach<Pool>([&](Pool* pool) {
    if (pool->card == context.card)
      while (!pool->chunks.empty()) EndChunk(*pool, **pool->chunks.begin());
  });
}

}  // namespace tessera::sim
