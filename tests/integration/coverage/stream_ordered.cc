// Memory pools: what a pool reserves is charged, in use or not; trimming and destroying give it
// back.
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

CUresult TrimDefaultPool() {
  CUmemoryPool pool = nullptr;
  CUresult result = DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0);
  return result != CUDA_SUCCESS ? result : DRIVER(cuMemPoolTrimTo)(pool, 0);
}

CUresult Settle(Bench& bench) { return DRIVER(cuStreamSynchronize)(bench.stream); }

using AllocAsync = CUresult(CUdeviceptr*, std::size_t, CUstream);
using AllocFromPool = CUresult(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream);
using FreeAsync = CUresult(CUdeviceptr, CUstream);

// Takes from the default pool with `alloc`, frees with `free`, then trims.
Steps DefaultPool(Bench& bench, std::function<AllocAsync> alloc, std::function<FreeAsync> free) {
  auto pointer = std::make_shared<CUdeviceptr>(0);
  Steps steps;
  steps.exceed = [=, &bench] { return alloc(pointer.get(), bench.limit + kMiB, bench.stream); };
  steps.take = [=, &bench] {
    CUresult result = alloc(pointer.get(), kPiece, bench.stream);
    return result != CUDA_SUCCESS ? result : Settle(bench);
  };
  steps.release = [=, &bench] {
    CUresult result = free(*pointer, bench.stream);
    if (result == CUDA_SUCCESS) result = Settle(bench);
    return result != CUDA_SUCCESS ? result : TrimDefaultPool();
  };
  return steps;
}

// Takes from a pool of our own; `empty` must leave nothing reserved.
Steps OwnPool(Bench& bench, std::function<AllocFromPool> alloc, std::function<CUresult()> empty) {
  auto pointer = std::make_shared<CUdeviceptr>(0);
  Steps steps;
  steps.exceed = [=, &bench] {
    return alloc(pointer.get(), bench.limit + kMiB, bench.OwnPool(), bench.stream);
  };
  steps.take = [=, &bench] {
    CUresult result = alloc(pointer.get(), kPiece, bench.OwnPool(), bench.stream);
    return result != CUDA_SUCCESS ? result : Settle(bench);
  };
  steps.release = [=, &bench] {
    CUresult result = DRIVER(cuMemFreeAsync)(*pointer, bench.stream);
    if (result == CUDA_SUCCESS) result = Settle(bench);
    return result != CUDA_SUCCESS ? result : empty();
  };
  return steps;
}

AllocFromPool* PlainFromPool() { return &DRIVER(cuMemAllocFromPoolAsync); }

CUresult TrimOwn(Bench& bench) { return DRIVER(cuMemPoolTrimTo)(bench.OwnPool(), 0); }

// Makes a pool of our own the one that cuMemAllocAsync uses, by `set`; the default pool is put back
// at the release.
Steps CurrentPool(Bench& bench, std::function<CUresult(CUmemoryPool pool)> set) {
  auto pointer = std::make_shared<CUdeviceptr>(0);
  auto take = [=, &bench](std::uint64_t bytes) {
    CUresult result = set(bench.OwnPool());
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemAllocAsync)(pointer.get(), bytes, bench.stream);
    }
    return result != CUDA_SUCCESS ? result : Settle(bench);
  };
  auto restore = [=] {
    CUmemoryPool pool = nullptr;
    CUresult result = DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0);
    return result != CUDA_SUCCESS ? result : set(pool);
  };
  Steps steps;
  steps.exceed = [=, &bench] {
    CUresult result = take(bench.limit + kMiB);
    restore();
    return result;
  };
  steps.take = [=] { return take(kPiece); };
  steps.release = [=, &bench] {
    CUresult result = DRIVER(cuMemFreeAsync)(*pointer, bench.stream);
    if (result == CUDA_SUCCESS) result = Settle(bench);
    if (result == CUDA_SUCCESS) result = TrimOwn(bench);
    CUresult restored = restore();
    return result != CUDA_SUCCESS ? result : restored;
  };
  return steps;
}

}  // namespace

void RegisterStreamOrdered(std::vector<Entry>& entries) {
  for (const char* symbol : {"cuMemAllocAsync", "cuMemAllocAsync_ptsz"}) {
    entries.push_back({symbol, [](Bench& bench, void* function) {
                         return DefaultPool(bench, reinterpret_cast<AllocAsync*>(function),
                                            DRIVER(cuMemFreeAsync));
                       }});
  }
  for (const char* symbol : {"cuMemFreeAsync", "cuMemFreeAsync_ptsz"}) {
    entries.push_back({symbol, [](Bench& bench, void* function) {
                         return DefaultPool(bench, DRIVER(cuMemAllocAsync),
                                            reinterpret_cast<FreeAsync*>(function));
                       }});
  }
  for (const char* symbol : {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"}) {
    entries.push_back({symbol, [](Bench& bench, void* function) {
                         return OwnPool(bench, reinterpret_cast<AllocFromPool*>(function),
                                        [&bench] { return TrimOwn(bench); });
                       }});
  }
  entries.push_back({"cuMemPoolTrimTo", [](Bench& bench, void* function) {
                       return OwnPool(bench, PlainFromPool(), [&bench, function] {
                         return AS(cuMemPoolTrimTo, function)(bench.OwnPool(), 0);
                       });
                     }});
  entries.push_back({"cuMemPoolDestroy", [](Bench& bench, void* function) {
                       return OwnPool(bench, PlainFromPool(), [&bench, function] {
                         CUmemoryPool pool = bench.OwnPool();
                         bench.pool = nullptr;
                         return AS(cuMemPoolDestroy, function)(pool);
                       });
                     }});
  // A release threshold above what is free keeps it reserved, and so charged, until it is lowered.
  entries.push_back({"cuMemPoolSetAttribute", [](Bench& bench, void* function) {
                       return OwnPool(bench, PlainFromPool(), [&bench, function] {
                         std::uint64_t threshold = 0;
                         CUresult result = AS(cuMemPoolSetAttribute, function)(
                             bench.OwnPool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
                         return result != CUDA_SUCCESS ? result : Settle(bench);
                       });
                     }});
  entries.push_back({"cuDeviceSetMemPool", [](Bench& bench, void* function) {
                       return CurrentPool(bench, [=](CUmemoryPool pool) {
                         return AS(cuDeviceSetMemPool, function)(0, pool);
                       });
                     }});
  entries.push_back({"cuMemSetMemPool", [](Bench& bench, void* function) {
                       return CurrentPool(bench, [=](CUmemoryPool pool) {
                         CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
                         return AS(cuMemSetMemPool, function)(&location,
                                                              CU_MEM_ALLOCATION_TYPE_PINNED, pool);
                       });
                     }});
  // Freeing pool memory by the synchronous call is legal and keeps the books.
  entries.push_back({"cuMemPoolCreate", [](Bench& bench, void* function) {
                       auto pool = std::make_shared<CUmemoryPool>(nullptr);
                       auto pointer = std::make_shared<CUdeviceptr>(0);
                       auto open = [=] {
                         CUmemPoolProps props{};
                         props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
                         props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
                         return AS(cuMemPoolCreate, function)(pool.get(), &props);
                       };
                       Steps steps;
                       steps.exceed = [=, &bench] {
                         CUresult result = open();
                         if (result != CUDA_SUCCESS) return result;
                         result = DRIVER(cuMemAllocFromPoolAsync)(pointer.get(), bench.limit + kMiB,
                                                                  *pool, bench.stream);
                         DRIVER(cuMemPoolDestroy)(*pool);
                         return result;
                       };
                       steps.take = [=, &bench] {
                         CUresult result = open();
                         if (result != CUDA_SUCCESS) return result;
                         return DRIVER(cuMemAllocFromPoolAsync)(pointer.get(), kPiece, *pool,
                                                                bench.stream);
                       };
                       steps.release = [=, &bench] {
                         CUresult result = DRIVER(cuMemFree_v2)(*pointer);
                         return result != CUDA_SUCCESS ? result : DRIVER(cuMemPoolDestroy)(*pool);
                       };
                       return steps;
                     }});
}

}  // namespace tessera::testing
