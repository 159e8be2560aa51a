// What two threads do to each other's pools.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "memory/testing/interleaving_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::After;
using testing::Before;
using testing::Call;
using testing::Held;
using testing::kMiB;
using testing::SetLimit;

using Interleaving = testing::InterleavingFixture;

TEST_F(Interleaving, APoolThatTwoThreadsDiscoverIsChargedOnce) {
  CUmemPoolProps props{};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  for (int round = 0; round < 300; ++round) {
    CUmemoryPool pool = nullptr;
    ASSERT_EQ(real::cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);  // past the fence
    std::atomic<int> ready = 0;
    CUdeviceptr pointers[2] = {};
    std::thread threads[2];
    for (int n = 0; n < 2; ++n) {
      threads[n] = std::thread([&, n] {
        real::cuCtxSetCurrent(context_);
        ++ready;
        while (ready < 2) {
        }
        cuMemAllocFromPoolAsync(&pointers[n], 2 * kMiB, pool, nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(Held(0, Kind::kPool), 4 * kMiB) << "round " << round;
    for (const CUdeviceptr p : pointers) ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    ASSERT_EQ(Held(0, Kind::kPool), 0u) << "round " << round;
  }
}

TEST_F(Interleaving, TheDriverIsNotAskedAboutAPoolThatIsBeingDestroyed) {
  const CUmemoryPool pool = NewPool();
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 10 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  SetLimit(0, base_ + 12 * kMiB);
  const int dead = testing::CallsOnTheDead();
  CUresult other = CUDA_SUCCESS;
  After(Call::kPoolDestroy, [&] { OtherThread([&] { other = cuMemAlloc_v2(&q, 8 * kMiB); }); });
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(testing::CallsOnTheDead(), dead);
  Same();
  if (other == CUDA_SUCCESS) cuMemFree_v2(q);
}

TEST_F(Interleaving, APoolIsNotDestroyedWhileTheFenceIsAtIt) {
  const CUmemoryPool pool = NewPool();
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 10 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  SetLimit(0, base_ + 12 * kMiB);
  const int dead = testing::CallsOnTheDead();
  std::atomic<CUresult> other = CUDA_ERROR_UNKNOWN;
  Before(Call::kPoolTrim, [&] { BeginOther([&] { other = cuMemPoolDestroy(pool); }); });
  EXPECT_EQ(cuMemAlloc_v2(&q, 8 * kMiB), CUDA_SUCCESS);
  Join();
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_EQ(testing::CallsOnTheDead(), dead);
  Same();
  cuMemFree_v2(q);
}

TEST_F(Interleaving, APoolThatTakesADestroyedOnesHandleIsCharged) {
  testing::ReuseHandles(true);
  const CUmemoryPool pool = NewPool();
  CUmemoryPool next = nullptr;
  CUdeviceptr p = 0, q = 0;
  After(Call::kPoolDestroy, [&] {
    OtherThread([&] {
      next = NewPool();
      cuMemAllocFromPoolAsync(&p, 10 * kMiB, next, nullptr);
    });
  });
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(next, pool);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&q, 10 * kMiB, next, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 20 * kMiB);
  Same();
  EXPECT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(next), CUDA_SUCCESS);
  Same();
  testing::ReuseHandles(false);
}

TEST_F(Interleaving, APoolThatCannotBeDestroyedStaysCharged) {
  CUdeviceptr p = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuMemAllocAsync(&p, 10 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(real::cuDeviceGetMemPool(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
}

TEST_F(Interleaving, TwoAllocationsThatFitAPoolBothGetTheirMemory) {
  SetLimit(0, base_ + 40 * kMiB);
  const CUmemoryPool pool = NewPool();
  CUdeviceptr first = 0, second = 0;
  CUresult other = CUDA_ERROR_UNKNOWN;
  After(Call::kPoolAlloc, [&] {
    OtherThread([&] { other = cuMemAllocFromPoolAsync(&second, 20 * kMiB, pool, nullptr); });
  });
  EXPECT_EQ(cuMemAllocFromPoolAsync(&first, 20 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 40 * kMiB);
  Same();
  for (const CUdeviceptr p : {first, second}) {
    if (p != 0) {
      EXPECT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  Same();
}

}  // namespace
}  // namespace tessera::fence
