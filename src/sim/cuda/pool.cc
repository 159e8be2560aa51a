#include "sim/cuda/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/physical.h"
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

// Gives empty chunks back until no more than `keep` is reserved.
void Trim(Pool& pool, std::uint64_t keep) {
  for (auto it = pool.chunks.begin(); it != pool.chunks.end() && pool.reserved > keep;) {
    PoolChunk& chunk = **it++;
    if (chunk.pieces.empty()) EndChunk(pool, chunk);
  }
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

void DropIfDone(Pool& pool) {
  if (!pool.destroyed || pool.used) return;
  Trim(pool, 0);
  delete &pool;
}

}  // namespace

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

CUresult AllocateFromPool(Pool& pool, std::uint64_t bytes, CUdeviceptr* pointer) {
  if (bytes == 0 || pool.imported) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > (std::uint64_t{1} << 46)) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryLock lock;
  CUdeviceptr taken = TakePiece(pool, bytes);
  for (int step = 0; !taken && step < 4; ++step) {
    // In turn: a usual chunk, one of the least size, the same after giving back what this pool does
    // not use.
    if (step == 2) Trim(pool, 0);
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
  DropIfDone(pool);
  return CUDA_SUCCESS;
}

void TrimPoolsAtSynchronize(int card) {
  if (!pools_in_use.load(std::memory_order_relaxed)) return;
  MemoryLock lock;
  ForEach<Pool>([&](Pool* pool) {
    if (pool->card == card && pool->reserved > pool->threshold) Trim(*pool, pool->threshold);
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

using namespace tessera::sim;

namespace {

// The pool of host memory, made when first asked for.
Pool* HostPool() {
  static Pool* const pool = [] {
    auto* made = new Pool;
    made->is_default = true;
    made->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
    std::fill(std::begin(made->access), std::end(made->access), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    made->handle = NewHandle(made);
    return made;
  }();
  return pool;
}
constinit std::atomic<Pool*> current_host_pool{nullptr};

CUresult Named(CUmemoryPool handle, Pool** pool) {
  *pool = Find<Pool>(handle);
  return *pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Allocate(Pool& pool, CUdeviceptr* pointer, std::size_t bytes, Stream& stream) {
  if (Capturing(stream)) {
    CUDA_MEM_ALLOC_NODE_PARAMS node{};
    node.poolProps = pool.properties;
    node.bytesize = bytes;
    SIM_TRY(CaptureAlloc(stream, node));
    *pointer = node.dptr;
    return CUDA_SUCCESS;
  }
  return AllocateFromPool(pool, bytes, pointer);
}

}  // namespace

SIM_API(cuMemAllocAsync)(CUdeviceptr* pointer, std::size_t bytes, CUstream handle) {
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  return Allocate(*CurrentPool(*stream->context->device), pointer, bytes, *stream);
}

SIM_API(cuMemAllocFromPoolAsync)(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool_handle,
                                 CUstream handle) {
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  Pool* pool = nullptr;
  SIM_TRY(Named(pool_handle, &pool));
  return Allocate(*pool, pointer, bytes, *stream);
}

SIM_API(cuMemFreeAsync)(CUdeviceptr pointer, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (Capturing(*stream)) return CaptureFree(*stream, pointer);
  if (IsGraphAllocation(pointer)) {
    if (!AllocationInUse(pointer)) return CUDA_ERROR_INVALID_VALUE;
    return Enqueue(*stream, EngineKind::kNone, 0, [pointer] { FreeDevice(pointer); });
  }
  {
    MemoryLock lock;
    Range* range = FindRange(pointer);
    if (!range) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == RangeKind::kPoolChunk) {
      auto& pieces = static_cast<PoolChunk*>(range)->pieces;
      const auto piece = pieces.find(pointer);
      if (piece == pieces.end() || piece->second.freed) return CUDA_ERROR_INVALID_VALUE;
      piece->second.freed = true;
    } else if (range->kind != RangeKind::kPoolImport || range->base + range->offset != pointer) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return Enqueue(*stream, EngineKind::kNone, 0, [pointer] { FreeDevice(pointer); });
}

SIM_API(cuMemPoolCreate)(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (!handle || !properties) return CUDA_ERROR_INVALID_VALUE;
  int card = -1;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED &&
      properties->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)
    return CUDA_ERROR_INVALID_VALUE;
  if (!CardOfLocation(properties->location, &card))
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                    : CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  auto* pool = new (std::nothrow) Pool;
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->properties = *properties;
  pool->card = card;
  if (card >= 0)
    pool->access[card] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  else
    std::fill(std::begin(pool->access), std::end(pool->access), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  *handle = pool->handle = NewHandle(pool);
  return CUDA_SUCCESS;
}

// The handle ends now; memory in use stays until its last allocation is freed.
SIM_API(cuMemPoolDestroy)(CUmemoryPool handle) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  RemoveHandle<Pool>(handle);
  for (std::atomic<Pool*>& current : current_pools) {
    Pool* expected = pool;
    current.compare_exchange_strong(expected, nullptr);
  }
  Pool* expected = pool;
  current_host_pool.compare_exchange_strong(expected, nullptr);
  MemoryLock lock;
  pool->destroyed = true;
  pool->handle = nullptr;
  Trim(*pool, 0);
  DropIfDone(*pool);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo)(CUmemoryPool handle, std::size_t keep) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  MemoryLock lock;
  Trim(*pool, keep);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolSetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<int*>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->threshold = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      if (*static_cast<cuuint64_t*>(value) != 0)
        return CUDA_ERROR_INVALID_VALUE;  // can only be reset
      const bool reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
      (reserved ? pool->reserved_high : pool->used_high) = reserved ? pool->reserved : pool->used;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuMemPoolGetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  auto& number = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) =
          pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = pool->threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      number = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      number = pool->reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      number = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      number = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuMemPoolSetAccess)(CUmemoryPool handle, const CUmemAccessDesc* list, std::size_t count) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (!list || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const Device* device = list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
                               ? FindDevice(list[i].location.id)
                               : nullptr;
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
      return CUDA_ERROR_INVALID_VALUE;  // pools know none or both
    if (device->card == pool->card && list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
      return CUDA_ERROR_INVALID_VALUE;
    if (pool->card >= 0 && device->card != pool->card && device->spec->link_type[pool->card] == 0)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  MemoryLock lock;
  for (std::size_t i = 0; i < count; ++i)
    pool->access[FindDevice(list[i].location.id)->card] = list[i].flags;
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAccess)(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  const Device* device =
      location->type == CU_MEM_LOCATION_TYPE_DEVICE ? FindDevice(location->id) : nullptr;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  MemoryLock lock;
  *flags = static_cast<CUmemAccess_flags>(pool->access[device->card]);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetDefaultMemPool)(CUmemoryPool* handle, CUdevice ordinal) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *handle = DefaultPool(*device)->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetMemPool)(CUmemoryPool* handle, CUdevice ordinal) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *handle = CurrentPool(*device)->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetMemPool)(CUdevice ordinal, CUmemoryPool handle) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (pool->card != device->card || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  current_pools[ordinal] = pool->is_default ? nullptr : pool;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetDefaultMemPool)(CUmemoryPool* handle, CUmemLocation* location,
                                CUmemAllocationType type) {
  int card = -1;
  if (!handle || !location || type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      !CardOfLocation(*location, &card))
    return CUDA_ERROR_INVALID_VALUE;
  *handle = card >= 0 ? DefaultPool(*FindDevice(location->id))->handle : HostPool()->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetMemPool)(CUmemoryPool* handle, CUmemLocation* location, CUmemAllocationType type) {
  int card = -1;
  if (!handle || !location || type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      !CardOfLocation(*location, &card))
    return CUDA_ERROR_INVALID_VALUE;
  if (card >= 0) return impl_cuDeviceGetMemPool(handle, location->id);
  Pool* current = current_host_pool.load();
  *handle = (current ? current : HostPool())->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMemSetMemPool)(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  int card = -1;
  if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED || !CardOfLocation(*location, &card))
    return CUDA_ERROR_INVALID_VALUE;
  if (card >= 0) return impl_cuDeviceSetMemPool(location->id, handle);
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  if (pool->card >= 0) return CUDA_ERROR_INVALID_VALUE;
  current_host_pool = pool->is_default ? nullptr : pool;
  return CUDA_SUCCESS;
}
