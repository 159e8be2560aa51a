#include "tests/integration/coverage/row.h"

#include <cstdio>
#include <cstdlib>

#include "tests/integration/support/figures.h"

namespace tessera::testing {

CUmemoryPool Bench::OwnPool() {
  if (pool == nullptr) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUresult result = DRIVER(cuMemPoolCreate)(&pool, &props);
    // Keeps what is freed, so that trimming, destroying and lowering the threshold have something
    // to give back.
    std::uint64_t keep = ~std::uint64_t{0};
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    }
    if (result != CUDA_SUCCESS) {
      std::fprintf(stderr, "coverage: no pool: %d\n", result);
      std::exit(97);
    }
  }
  return pool;
}

void Bench::FillLeaving(std::uint64_t leave_bytes) {
  for (;;) {
    Figures now = ReadFigures();
    std::uint64_t left = now.limit - now.ledger_total;
    if (left <= leave_bytes) return;
    std::uint64_t bytes = left - leave_bytes;
    bytes = bytes / (2 * kMiB) * (2 * kMiB);
    if (bytes == 0) return;
    CUdeviceptr pointer = 0;
    CUresult result = DRIVER(cuMemAlloc_v2)(&pointer, bytes);
    if (result != CUDA_SUCCESS) {
      std::fprintf(stderr, "coverage: cannot fill %llu MiB: %d\n",
                   static_cast<unsigned long long>(bytes / kMiB), result);
      std::exit(97);
    }
    fill_.push_back(pointer);
  }
}

void Bench::EmptyFill() {
  for (CUdeviceptr pointer : fill_) DRIVER(cuMemFree_v2)(pointer);
  fill_.clear();
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = [] {
    std::vector<Entry> all;
    for (Registrar add :
         {RegisterLinear, RegisterStreamOrdered, RegisterVirtualMemory, RegisterArrays,
          RegisterGraphs, RegisterImports, RegisterContexts, RegisterModules}) {
      add(all);
    }
    return all;
  }();
  return entries;
}

const std::vector<Excuse>& Excuses() {
  static const std::vector<Excuse> excuses = {
      {"cuMemAlloc",
       "32-bit form: src/fence/memory tests show that it cannot take what is not charged"},
      {"cuMemAllocPitch", "32-bit form, as cuMemAlloc"},
      {"cuMemFree", "32-bit form, as cuMemAlloc"},
      {"cuArrayCreate", "32-bit form, as cuMemAlloc"},
      {"cuArray3DCreate", "32-bit form, as cuMemAlloc"},
      {"cuCtxAttach", "adds a reference, no memory: src/fence/memory context tests"},
      {"cuCtxDetach", "drops a reference: src/fence/memory context tests"},
      {"cuCtxSetLimit",
       "changes what the context takes later, measured then: src/fence/memory context tests"},
      {"cuGreenCtxCreate",
       "makes a primary context: src/fence/memory context tests with the fake driver"},
      {"cuGreenCtxDestroy", "as cuGreenCtxCreate"},
      {"cuLibraryGetModule",
       "loads a library where it was not yet: the rows of cuLibraryLoad* use it"},
      {"cuLibraryGetKernel", "as cuLibraryGetModule"},
      {"cuLibraryEnumerateKernels", "as cuLibraryGetModule"},
      {"cuLibraryGetUnifiedFunction", "as cuLibraryGetModule"},
      {"cuLibraryGetGlobal", "as cuLibraryGetModule"},
      {"cuLibraryGetManaged", "as cuLibraryGetModule"},
      {"cuKernelGetFunction", "as cuLibraryGetModule"},
      {"cuFuncGetAttribute", "as cuLibraryGetModule"},
      {"cuFuncSetAttribute", "as cuLibraryGetModule"},
      {"cuFuncGetModule", "as cuLibraryGetModule"},
      {"cuFuncGetName", "as cuLibraryGetModule"},
      {"cuFuncGetParamInfo", "as cuLibraryGetModule"},
      {"cuFuncIsLoaded", "as cuLibraryGetModule"},
      {"cuFuncLoad", "as cuLibraryGetModule"},
      {"cuFuncSetCacheConfig", "as cuLibraryGetModule"},
      {"cuFuncSetSharedMemConfig", "as cuLibraryGetModule"},
      {"cuFuncSetBlockShape", "as cuLibraryGetModule"},
      {"cuFuncSetSharedSize", "as cuLibraryGetModule"},
      {"cuKernelGetAttribute", "as cuLibraryGetModule"},
      {"cuKernelSetAttribute", "as cuLibraryGetModule"},
      {"cuKernelSetCacheConfig", "as cuLibraryGetModule"},
      {"cuOccupancyAvailableDynamicSMemPerBlock", "as cuLibraryGetModule"},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", "as cuLibraryGetModule"},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "as cuLibraryGetModule"},
      {"cuOccupancyMaxActiveClusters", "as cuLibraryGetModule"},
      {"cuOccupancyMaxPotentialBlockSize", "as cuLibraryGetModule"},
      {"cuOccupancyMaxPotentialBlockSizeWithFlags", "as cuLibraryGetModule"},
      {"cuOccupancyMaxPotentialClusterSize", "as cuLibraryGetModule"},
      {"cuGraphAddKernelNode", "as cuLibraryGetModule"},
      {"cuGraphKernelNodeSetParams", "as cuLibraryGetModule"},
      {"cuGraphExecKernelNodeSetParams", "as cuLibraryGetModule"},
      {"cuGraphAddKernelNode_v2", "as cuLibraryGetModule"},
      {"cuGraphKernelNodeSetParams_v2", "as cuLibraryGetModule"},
      {"cuGraphExecKernelNodeSetParams_v2", "as cuLibraryGetModule"},
      {"cuGraphAddNode", "as cuLibraryGetModule"},
      {"cuGraphAddNode_v2", "as cuLibraryGetModule"},
      {"cuGraphNodeSetParams", "as cuLibraryGetModule"},
      {"cuGraphExecNodeSetParams", "as cuLibraryGetModule"},
      {"cuMemMapArrayAsync",
       "refers to memory that cuMemCreate has charged: src/fence/memory/physical_test.cc"},
      {"cuMemMapArrayAsync_ptsz", "as cuMemMapArrayAsync"},
      {"cuMulticastCreate", "as cuMemMapArrayAsync"},
      {"cuMulticastBindMem", "as cuMemMapArrayAsync"},
      {"cuMulticastBindAddr", "as cuMemMapArrayAsync"},
      {"cuMulticastUnbind", "as cuMemMapArrayAsync"},
  };
  return excuses;
}

}  // namespace tessera::testing
