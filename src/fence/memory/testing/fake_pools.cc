// Memory pools.
#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

void TrimPool(Pool* pool, std::uint64_t keep) {
  const std::uint64_t floor = keep > pool->used ? keep : pool->used;
  if (pool->reserved > floor) {
    D().bytes[pool->card] -= pool->reserved - floor;
    pool->reserved = floor;
  }
}

CUresult GetDefault(CUmemoryPool* pool, CUdevice device) {
  Lock lock(D().mutex);
  Pool*& found = D().default_pools[device];
  if (found == nullptr) D().pools.insert(found = new Pool{device, 0, 0, 0, false});
  *pool = reinterpret_cast<CUmemoryPool>(found);
  return CUDA_SUCCESS;
}
CUresult GetPool(CUmemoryPool* pool, CUdevice device) {
  Lock lock(D().mutex);
  if (D().current_pools[device] == nullptr) return GetDefault(pool, device);
  *pool = reinterpret_cast<CUmemoryPool>(D().current_pools[device]);
  return CUDA_SUCCESS;
}
CUresult SetPool(CUdevice device, CUmemoryPool pool) {
  Lock lock(D().mutex);
  D().current_pools[device] = reinterpret_cast<Pool*>(pool);
  return CUDA_SUCCESS;
}
CUresult PoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  Lock lock(D().mutex);
  Pool* made = nullptr;
  if (D().reuse_handles) std::swap(made, D().last_pool);
  if (made == nullptr) made = new Pool();
  *made = {props->location.id, 0, 0, 0, false};
  D().pools.insert(made);
  *pool = reinterpret_cast<CUmemoryPool>(made);
  return CUDA_SUCCESS;
}
// Whether the handle is a pool's; the real driver does not look.
bool IsAlive(CUmemoryPool handle) {
  auto* pool = reinterpret_cast<Pool*>(handle);
  const bool alive = D().pools.count(pool) != 0 && !pool->destroyed;
  if (!alive) ++D().calls_on_the_dead;
  return alive;
}
CUresult PoolDestroy(CUmemoryPool handle) {
  Lock lock(D().mutex);
  if (!IsAlive(handle)) return CUDA_ERROR_INVALID_VALUE;
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (pool == D().default_pools[pool->card]) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(pool, 0);
  pool->destroyed = true;
  if (pool->used == 0) EndPool(pool);
  return CUDA_SUCCESS;
}
CUresult PoolTrim(CUmemoryPool pool, std::size_t keep) {
  Lock lock(D().mutex);
  if (!IsAlive(pool)) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(reinterpret_cast<Pool*>(pool), keep);
  return CUDA_SUCCESS;
}
CUresult PoolSet(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Lock lock(D().mutex);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    reinterpret_cast<Pool*>(pool)->threshold = *static_cast<cuuint64_t*>(value);
  }
  return CUDA_SUCCESS;
}
CUresult PoolGet(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Lock lock(D().mutex);
  if (!IsAlive(handle)) return CUDA_ERROR_INVALID_VALUE;
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    *static_cast<cuuint64_t*>(value) = pool->reserved;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) *static_cast<cuuint64_t*>(value) = pool->used;
  return CUDA_SUCCESS;
}
CUresult AllocFromPool(CUdeviceptr* pointer, std::size_t size, CUmemoryPool handle, CUstream) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  auto* pool = reinterpret_cast<Pool*>(handle);
  const std::uint64_t bytes = Blocks(size);
  if (pool->used + bytes > pool->reserved) {
    D().bytes[pool->card] += pool->used + bytes - pool->reserved;
    pool->reserved = pool->used + bytes;
  }
  pool->used += bytes;
  *pointer = TakeAddress(bytes);
  D().ranges[*pointer] = {size, t_current, 0, handle, false, 0};
  return CUDA_SUCCESS;
}
CUresult AllocAsync(CUdeviceptr* pointer, std::size_t size, CUstream stream) {
  CUmemoryPool pool;
  GetPool(&pool, t_current->card);
  return AllocFromPool(pointer, size, pool, stream);
}
CUresult FreeAsync(CUdeviceptr pointer, CUstream) { return MemFree(pointer); }
CUresult IsCapturing(CUstream, CUstreamCaptureStatus* status) {
  Lock lock(D().mutex);
  *status = D().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult Synchronize() {
  Lock lock(D().mutex);
  for (const auto& key : D().unbound_at_synchronisation) EndBinding(key);
  D().unbound_at_synchronisation.clear();
  for (Pool* pool : D().pools) {
    if (pool->reserved > pool->threshold) TrimPool(pool, pool->threshold);
  }
  return CUDA_SUCCESS;
}
CUresult SynchronizeStream(CUstream) { return Synchronize(); }

}  // namespace

void EndPool(Pool* pool) {
  D().pools.erase(pool);
  for (Pool*& current : D().current_pools) {
    if (current == pool) current = nullptr;
  }
  D().last_pool = pool;
  D().ended_pools.push_back(pool);
}

void PlacePools() {
  real::cuDeviceGetMemPool = GetPool;
  real::cuDeviceGetDefaultMemPool = GetDefault;
  real::cuDeviceSetMemPool = SetPool;
  real::cuMemPoolCreate = Watched<Call::kPoolCreate, PoolCreate>;
  real::cuMemPoolDestroy = Watched<Call::kPoolDestroy, PoolDestroy>;
  real::cuMemPoolTrimTo = Watched<Call::kPoolTrim, PoolTrim>;
  real::cuMemPoolSetAttribute = PoolSet;
  real::cuMemPoolGetAttribute = PoolGet;
  real::cuMemAllocFromPoolAsync = Watched<Call::kPoolAlloc, AllocFromPool>;
  real::cuMemAllocAsync = Watched<Call::kPoolAlloc, AllocAsync>;
  real::cuMemFreeAsync = FreeAsync;
  real::cuStreamIsCapturing = IsCapturing;
  real::cuCtxSynchronize = Synchronize;
  real::cuStreamSynchronize = SynchronizeStream;
}

}  // namespace tessera::fence::testing::fake
