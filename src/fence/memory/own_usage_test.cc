// What no call asks for (code, shared blocks, memory that a pool gives back by itself) is charged
// exactly, whatever neighbours do.
#include "memory/own_usage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "memory/testing/own_usage_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::DriverBytes;
using testing::Held;
using testing::kImageOf12MiB;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;

using OwnUsage = testing::OwnUsageFixture;

TEST_F(OwnUsage, TheDriversFigureDecidesWhereANeighbourMoves) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  testing::NeighbourMovesInNextLoad(600 * kMiB);
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, "small text"), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB);
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(OwnUsage, WithoutTheDriversFigureANeighboursMoveIsNotTakenForCode) {
  testing::NeighbourMovesInNextLoad(600 * kMiB);
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kImageOf12MiB), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB) << "what the image says";
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(OwnUsage, AloneTheDriverIsNotAskedForItsFigure) {
  testing::TellOwnBytes(true);
  const int asked = testing::OwnBytesAsked();
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, "small text"), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(testing::OwnBytesAsked(), asked);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(OwnUsage, AnEstimateThatIsTooHighIsGivenBack) {
  for (const bool tells : {false, true}) {
    testing::TellOwnBytes(tells);
    testing::SetCodeBytes(4 * kMiB);
    const Neighbour neighbour;
    CUmodule module = nullptr;
    ASSERT_EQ(cuModuleLoadData(&module, kImageOf12MiB), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), tells ? DriverBytes(0) : base_ + 14 * kMiB);
    ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_);
  }
}

TEST_F(OwnUsage, CodeThatDoesNotFitNeverReachesTheDriver) {
  SetLimit(0, base_ + 10 * kMiB);
  const int loaded = testing::ModulesLoaded();
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, kImageOf12MiB), CUDA_ERROR_OUT_OF_MEMORY);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kImageOf12MiB, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryGetModule(&module, library), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "k"), CUDA_ERROR_OUT_OF_MEMORY)
      << "its first launch would load it";
  EXPECT_EQ(testing::ModulesLoaded(), loaded);
  EXPECT_EQ(LedgerBytes(0), base_);
  SetLimit(0, base_ + 14 * kMiB);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS) << "tried again, with room";
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  ASSERT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(OwnUsage, ALibraryThatIsNeverUsedOwesNothing) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kImageOf12MiB, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(OwnUsage, WhatGraphsGiveBackUnseenIsNoticedByTheNextQuestion) {
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, reinterpret_cast<CUgraph>(30 * kMiB), 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(real::cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 0u);
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(OwnUsage, WhatAPoolGivesBackUnseenIsNoticedByTheNextQuestion) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(real::cuDeviceGetMemPool(&pool, 0), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 30 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemPoolTrimTo(pool, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 20 * kMiB);
  ASSERT_EQ(real::cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
}

TEST_F(OwnUsage, AFigureIsNotTakenWhileAnotherThreadIsInACall) {
  testing::TellOwnBytes(true);
  const Underway underway;
  EXPECT_EQ(SettleOwn(testing::SliceCard(0)), Settled::kLater);
  EXPECT_TRUE(AnyUnsettled());
}

TEST_F(OwnUsage, ThreadsThatLoadAndAllocateEndExact) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  std::atomic<bool> wrong = false;
  std::vector<std::thread> threads;
  for (int n = 0; n < 5; ++n) {
    threads.emplace_back([&, n] {
      real::cuCtxSetCurrent(context_);
      std::minstd_rand random(n + 1);
      for (int i = 0; i < 400; ++i) {
        if (n == 0 && i % 8 == 0) {
          CUmodule module = nullptr;
          if (cuModuleLoadData(&module, kImageOf12MiB) != CUDA_SUCCESS ||
              cuModuleUnload(module) != CUDA_SUCCESS)
            wrong = true;
        }
        CUdeviceptr p = 0;
        if (cuMemAlloc_v2(&p, 1 + random() % (8 * kMiB)) != CUDA_SUCCESS ||
            cuMemFree_v2(p) != CUDA_SUCCESS)
          wrong = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_NE(SettleOwn(testing::SliceCard(0)), Settled::kLater);
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  EXPECT_EQ(LedgerBytes(0), base_);
}

}  // namespace
}  // namespace tessera::fence
