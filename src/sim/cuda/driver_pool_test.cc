// Memory pools.
#include "sim/cuda/testing/sharing.h"

namespace tessera::sim {
namespace {

using Pools = Sharing;

TEST_F(Pools, GrowAndAreTrimmed) {
  CUmemoryPool pool{}, current{};
  ASSERT_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDeviceGetMemPool)(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(pool, current);
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(CU(cuMemAllocAsync)(&a, 1000, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 32 * kMiB);
  ASSERT_EQ(CU(cuMemAllocAsync)(&b, 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 96 * kMiB);
  cuuint64_t value = 0;
  EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 96 * kMiB);
  EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1024 + 40 * kMiB);
  EXPECT_EQ(CU(cuMemFreeAsync)(b, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(b, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 32 * kMiB);
  EXPECT_EQ(CU(cuMemFree_v2)(a), CUDA_SUCCESS);  // allowed for pool memory
  EXPECT_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Pools, KeepMemoryBelowTheThresholdAtSynchronisation) {
  CUmemoryPool pool{};
  ASSERT_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
  cuuint64_t threshold = 64 * kMiB;
  EXPECT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  CUdeviceptr pieces[3] = {};
  for (CUdeviceptr& piece : pieces)
    ASSERT_EQ(CU(cuMemAllocAsync)(&piece, 30 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 96 * kMiB);
  for (CUdeviceptr piece : pieces) EXPECT_EQ(CU(cuMemFreeAsync)(piece, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 64 * kMiB);
  threshold = 0;
  EXPECT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Pools, OwnPoolsEndWithTheirLastAllocation) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.maxSize = 64 * kMiB;
  CUmemoryPool pool{};
  ASSERT_EQ(CU(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDeviceSetMemPool)(0, pool), CUDA_SUCCESS);
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(CU(cuMemAllocFromPoolAsync)(&a, 20 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&b, 80 * kMiB, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);  // the pool's own limit
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&b, 1, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 32 * kMiB);
  EXPECT_EQ(CU(cuMemFreeAsync)(a, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  CUmemoryPool current{}, standard{};
  CU(cuDeviceGetMemPool)(&current, 0);
  CU(cuDeviceGetDefaultMemPool)(&standard, 0);
  EXPECT_EQ(current, standard);
}

TEST_F(Pools, UseWhatIsLeftOfTheCard) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  CUdeviceptr most = 0, rest = 0, more = 0;
  ASSERT_EQ(CU(cuMemAlloc_v2)(&most, free - 6 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&rest, 5 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&more, 2 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemFreeAsync)(rest, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFree_v2)(most), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace tessera::sim
