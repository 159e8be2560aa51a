// cuMemAllocAsync and its kin, and the life of pools.
#include "memory/linear.h"
#include "memory/pool_alloc.h"
#include "memory/pools.h"
#include "memory/private_copy.h"
#include "real.h"

namespace tessera::fence {
namespace {

// The context whose device a stream allocates on.
Place PlaceOfStream(CUstream stream) {
  const auto value = reinterpret_cast<std::uint64_t>(stream);
  if (value <= 2) return CurrentPlace();  // null, legacy and per-thread default streams
  CUcontext context = nullptr;
  if (real::cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return CurrentPlace();
  return PlaceOf(context);
}

// A capture only describes the allocation; memory comes when the graph is launched.
bool IsCapturing(CUstream stream, decltype(real::cuStreamIsCapturing) ask) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <typename Allocate>
CUresult AllocateFrom(CUdeviceptr* out, std::uint64_t size, CUmemoryPool pool, const Place& place,
                      CUstream stream, Allocate&& allocate) {
  if (place.card == kUnknownCard || IsUncharged(pool)) return allocate(out);
  if (place.card == kForeignCard || size > kMaxAllocation) return Refuse(place.card, size);
  if (pool == nullptr) return allocate(out);
  const std::uint32_t record = PoolRecord(pool, place.card);
  if (record == 0) return Refuse(place.card, size);
  const Underway underway;
  const int card = PoolCard(record);
  const std::uint64_t taken = RoundToBlocks(size);
  const bool granted = Reserve(card, Kind::kPool, taken);
  // What the pool has in vain serves one thread at a time, which then has it.
  Turn turn;
  if (!granted) turn.Wait(card);
  if (!granted && !PoolIdle(record, size)) return Refuse(card, size);
  if (granted) PoolPromised(record, taken);
  CUdeviceptr pointer = 0;
  const CUresult result = allocate(&pointer);
  if (result != CUDA_SUCCESS) {
    if (granted) PoolWithdrawn(record, taken);
    return result;
  }
  Allocation entry, stale;
  entry.size = size;
  entry.owner = record;
  entry.card = static_cast<std::uint32_t>(card);
  entry.kind = Kind::kPool;
  std::uint64_t opened = 0, stale_bytes = 0;
  const bool fits = PoolGrew(record, granted ? taken : 0);
  if (fits && LiveTable().Insert(pointer, entry, &opened, &stale, &stale_bytes)) {
    if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
    *out = pointer;
    return CUDA_SUCCESS;
  }
  real::cuMemFreeAsync(pointer, stream);
  if (fits) PoolFreed(record);
  PoolUndone(record);
  return Refuse(card, size);
}

CUmemoryPool CurrentPool(const Place& place) {
  CUmemoryPool pool = nullptr;
  if (place.device < 0 || real::cuDeviceGetMemPool(&pool, place.device) != CUDA_SUCCESS)
    return nullptr;
  return pool;
}

// For a capture, which another thread may have ended before the driver looked: then the memory has
// come at once, and is charged by what the pool has reserved.
template <typename Call>
CUresult Captured(CUmemoryPool pool, const Place& place, Call&& call) {
  const CUresult result = call();
  if (result != CUDA_SUCCESS || place.card < 0) return result;
  if (const std::uint32_t record = PoolRecord(pool, place.card); record != 0) {
    SettlePool(record);
    PoolMayShrink(record);
  }
  return result;
}

// Another thread may make another pool the current one at any moment: the memory is asked of the
// pool that is charged, by name.
CUresult AllocateAsync(CUdeviceptr* out, size_t size, CUstream stream,
                       decltype(real::cuMemAllocAsync) call,
                       decltype(real::cuMemAllocFromPoolAsync) call_from,
                       decltype(real::cuStreamIsCapturing) ask) {
  if (!Fenced() || out == nullptr || size == 0) return call(out, size, stream);
  const Place place = PlaceOfStream(stream);
  const CUmemoryPool pool = CurrentPool(place);
  if (IsCapturing(stream, ask))
    return Captured(pool, place, [&] { return call(out, size, stream); });
  return AllocateFrom(out, size, pool, place, stream, [&](CUdeviceptr* pointer) {
    return pool == nullptr ? call(pointer, size, stream) : call_from(pointer, size, pool, stream);
  });
}

CUresult AllocateFromPool(CUdeviceptr* out, size_t size, CUmemoryPool pool, CUstream stream,
                          decltype(real::cuMemAllocFromPoolAsync) call,
                          decltype(real::cuStreamIsCapturing) ask) {
  if (!Fenced() || out == nullptr || size == 0) return call(out, size, pool, stream);
  if (IsCapturing(stream, ask))
    return Captured(pool, PlaceOfStream(stream), [&] { return call(out, size, pool, stream); });
  return AllocateFrom(out, size, pool, PlaceOfStream(stream), stream,
                      [&](CUdeviceptr* pointer) { return call(pointer, size, pool, stream); });
}

CUresult FreeAsync(CUdeviceptr pointer, CUstream stream, decltype(real::cuMemFreeAsync) call) {
  if (!Fenced()) return call(pointer, stream);
  return FreeLinear(pointer, [&] { return call(pointer, stream); });
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return AllocateAsync(dptr, bytesize, stream, real::cuMemAllocAsync, real::cuMemAllocFromPoolAsync,
                       real::cuStreamIsCapturing);
}
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return AllocateAsync(dptr, bytesize, stream, real::cuMemAllocAsync_ptsz,
                       real::cuMemAllocFromPoolAsync_ptsz, real::cuStreamIsCapturing_ptsz);
}
CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream stream) {
  return AllocateFromPool(dptr, bytesize, pool, stream, real::cuMemAllocFromPoolAsync,
                          real::cuStreamIsCapturing);
}
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                              CUstream stream) {
  return AllocateFromPool(dptr, bytesize, pool, stream, real::cuMemAllocFromPoolAsync_ptsz,
                          real::cuStreamIsCapturing_ptsz);
}
CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  return FreeAsync(dptr, stream, real::cuMemFreeAsync);
}
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  return FreeAsync(dptr, stream, real::cuMemFreeAsync_ptsz);
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  if (!Fenced() || pool == nullptr || props == nullptr) return real::cuMemPoolCreate(pool, props);
  const PrivateCopy wanted(props);
  CUmemoryPool made = nullptr;
  const CUresult result = real::cuMemPoolCreate(&made, wanted.get());
  if (result != CUDA_SUCCESS) return result;
  const bool managed = wanted->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    NoteNewPool(made, CardOfDevice(wanted->location.id),
                managed ? PoolMemory::kManaged : PoolMemory::kPinned);
  } else if (managed) {
    // Wherever it prefers to be, any card may draw it in: charged as cuMemAllocManaged is.
    NoteNewPool(made, CurrentPlace().card, PoolMemory::kManaged);
  } else {
    NoteHostPool(made);
  }
  *pool = made;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  const std::uint32_t record = Fenced() ? PoolRecord(pool, kUnknownCard) : 0;
  const bool goes = PoolGoes(record);
  const CUresult result = real::cuMemPoolDestroy(pool);
  if (goes) result == CUDA_SUCCESS ? PoolDestroyed(record) : PoolStays(record);
  return result;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = real::cuMemPoolTrimTo(pool, keep);
  if (result != CUDA_SUCCESS || !Fenced()) return result;
  if (const std::uint32_t record = PoolRecord(pool, kUnknownCard); record != 0) SettlePool(record);
  return result;
}

// A lower release threshold lets memory go, now or at the next synchronisation.
CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                       void* value) {
  const CUresult result = real::cuMemPoolSetAttribute(pool, attribute, value);
  if (result != CUDA_SUCCESS || !Fenced()) return result;
  if (const std::uint32_t record = PoolRecord(pool, kUnknownCard); record != 0) {
    SettlePool(record);
    PoolMayShrink(record);
  }
  return result;
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle,
                                                    CUmemAllocationHandleType type,
                                                    unsigned long long flags) {
  if (!Fenced() || pool == nullptr)
    return real::cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
  CUmemoryPool made = nullptr;
  const CUresult result = real::cuMemPoolImportFromShareableHandle(&made, handle, type, flags);
  if (result != CUDA_SUCCESS) return result;
  NoteImportedPool(made);
  *pool = made;
  return CUDA_SUCCESS;
}

}  // extern "C"
