// The functions of memory pools.
#include <algorithm>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/physical.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

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
  ForgetCurrentPool(*pool);
  Pool* expected = pool;
  current_host_pool.compare_exchange_strong(expected, nullptr);
  MemoryLock lock;
  pool->destroyed = true;
  pool->handle = nullptr;
  TrimPool(*pool, 0);
  EndPoolIfDone(*pool);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo)(CUmemoryPool handle, std::size_t keep) {
  Pool* pool = nullptr;
  SIM_TRY(Named(handle, &pool));
  MemoryLock lock;
  TrimPool(*pool, keep);
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
  SetCurrentPool(*device, *pool);
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
