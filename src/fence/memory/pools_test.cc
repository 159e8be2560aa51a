// Pools: charged by what the driver says that they have reserved.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::Held;
using testing::kMiB;
using testing::SetLimit;

using Memory = testing::MemoryFixture;

TEST_F(Memory, PoolsAreChargedByWhatTheyReserve) {
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 30 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB)
      << "the pool holds it until the stream is synchronised";
  ASSERT_EQ(cuMemAllocAsync(&q, 20 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB);
  ASSERT_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
  Same();
}

TEST_F(Memory, ADefaultPoolIsChargedToItsOwnCardWhereverItsStreamIs) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(real::cuDeviceGetDefaultMemPool(&pool, 1), CUDA_SUCCESS);
  CUdeviceptr p = 0, refused = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 30 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
  EXPECT_EQ(Held(1, Kind::kPool), 30 * kMiB);
  Same();
  SetLimit(1, testing::LedgerBytes(1) + 8 * kMiB);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&refused, 20 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(1, Kind::kPool), 0u);
}

TEST_F(Memory, FourThousandPoolsAreToldApart) {
  constexpr int kPools = 4000;
  CUmemPoolProps props{};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  std::vector<CUmemoryPool> pools(kPools);
  for (CUmemoryPool& pool : pools) ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&p, kMiB, pools.back(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 2 * kMiB);
  EXPECT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  for (const CUmemoryPool pool : pools) ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
}

TEST_F(Memory, APoolCannotGrowPastTheLimitAndGivesBackBeforeOthersAreRefused) {
  SetLimit(0, base_ + 50 * kMiB);
  CUdeviceptr p = 0, q = 4;
  ASSERT_EQ(cuMemAllocAsync(&p, 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocAsync(&q, 20 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 4u);
  Same();
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&q, 48 * kMiB), CUDA_SUCCESS)
      << "what the pool holds in vain is not in the way";
  Same();
  cuMemFree_v2(q);
}

TEST_F(Memory, ADestroyedPoolIsChargedUntilItsLastAllocationGoes) {
  CUmemPoolProps props{};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  cuuint64_t keep = UINT64_MAX;
  ASSERT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), CUDA_SUCCESS);
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 10 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&q, 6 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 16 * kMiB) << "above the threshold only";
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
  Same();
}

}  // namespace
}  // namespace tessera::fence
