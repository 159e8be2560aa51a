// What two threads do to each other's contexts.
#include <gtest/gtest.h>

#include <atomic>

#include "memory/contexts.h"
#include "memory/testing/interleaving_fixture.h"

namespace tessera::fence {
namespace {

using testing::After;
using testing::Before;
using testing::Call;
using testing::kContextBytes;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;

using Interleaving = testing::InterleavingFixture;

TEST_F(Interleaving, AContextThatTwoThreadsDiscoverHasOneRecord) {
  CUcontext foreign = nullptr;
  ASSERT_EQ(real::cuCtxCreate_v4(&foreign, nullptr, 0, 0), CUDA_SUCCESS);  // past the fence
  std::uint32_t other = 0;
  Before(Call::kGetDevice, [&] { OtherThread([&] { other = PlaceOf(foreign).context; }); });
  const std::uint32_t mine = PlaceOf(foreign).context;
  EXPECT_NE(mine, 0u);
  EXPECT_EQ(mine, other);
  EXPECT_EQ(cuCtxDestroy_v2(foreign), CUDA_SUCCESS);
  real::cuCtxSetCurrent(context_);
}

TEST_F(Interleaving, ThreadsThatRetainThePrimaryContextNeedRoomForOne) {
  SetLimit(0, base_ + kContextBytes);
  CUcontext mine = nullptr;
  std::atomic<CUcontext> others = nullptr;
  std::atomic<CUresult> other = CUDA_ERROR_UNKNOWN;
  Before(Call::kRetain, [&] {
    BeginOther([&] {
      CUcontext context = nullptr;
      other = cuDevicePrimaryCtxRetain(&context, 0);
      others = context;
    });
  });
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&mine, 0), CUDA_SUCCESS);
  Join();
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_EQ(others, mine);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  Same();
  if (other == CUDA_SUCCESS) {
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  Same();
}

// The last reference goes between a look at the context and the call that adds one.
TEST_F(Interleaving, APrimaryContextThatIsMadeAnewIsChargedAnew) {
  CUcontext first = nullptr, again = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
  Before(Call::kRetain, [&] { BeginOther([] { cuDevicePrimaryCtxRelease_v2(0); }); });
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  Join();
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  Same();
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  Same();
}

TEST_F(Interleaving, AFormerPrimaryContextsMemoryIsRefundedThoughANewOneIsThere) {
  testing::ReuseHandles(true);
  CUcontext first = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
  real::cuCtxSetCurrent(first);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 20 * kMiB), CUDA_SUCCESS);
  std::atomic<CUresult> other = CUDA_ERROR_UNKNOWN;
  After(Call::kRelease, [&] {
    BeginOther([&] {
      CUcontext context = nullptr;
      other = cuDevicePrimaryCtxRetain(&context, 0);
    });
  });
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  Join();
  real::cuCtxSetCurrent(context_);
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  Same();
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  Same();
  testing::ReuseHandles(false);
}

TEST_F(Interleaving, AContextThatTakesADestroyedOnesHandleIsChargedForItself) {
  testing::ReuseHandles(true);
  CUcontext third = nullptr, fourth = nullptr;
  ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 20 * kMiB), CUDA_SUCCESS);
  After(Call::kContextDestroy,
        [&] { OtherThread([&] { cuCtxCreate_v4(&fourth, nullptr, 0, 0); }); });
  EXPECT_EQ(cuCtxDestroy_v2(third), CUDA_SUCCESS);
  EXPECT_EQ(fourth, third);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  Same();
  EXPECT_EQ(cuCtxDestroy_v2(fourth), CUDA_SUCCESS);
  Same();
  real::cuCtxSetCurrent(context_);
  testing::ReuseHandles(false);
}

TEST_F(Interleaving, AContextThatIsNotDestroyedKeepsItsRecord) {
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  real::cuCtxSetCurrent(primary);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 20 * kMiB), CUDA_SUCCESS);
  const std::uint32_t record = ContextRecord(primary);
  EXPECT_EQ(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ContextRecord(primary), record);
  Same();
  real::cuCtxSetCurrent(context_);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  Same();
}

}  // namespace
}  // namespace tessera::fence
