// cuMemAlloc and kin, and what a program is told: what the ledger says is what the driver has
// given.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::DriverBytes;
using testing::Held;
using testing::kMiB;
using testing::kRoom;
using testing::LedgerBytes;
using testing::SetLimit;

using Memory = testing::MemoryFixture;

TEST_F(Memory, ChargesWhatTheDriverTakes) {
  std::vector<CUdeviceptr> pointers;
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{4096}, kMiB, kMiB + 1, 2 * kMiB, 3 * kMiB, 100 * kMiB}) {
    CUdeviceptr p = 0;
    ASSERT_EQ(cuMemAlloc_v2(&p, size), CUDA_SUCCESS);
    pointers.push_back(p);
    Same();
  }
  for (const CUdeviceptr p : pointers) {
    ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
    Same();
  }
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, TheLimitHoldsToTheByte) {
  SetLimit(0, base_ + 10 * kMiB);
  CUdeviceptr p = 0, q = 77;
  ASSERT_EQ(cuMemAlloc_v2(&p, 10 * kMiB), CUDA_SUCCESS);
  const int calls = testing::AllocationCalls();
  const std::uint64_t denied = testing::Denied(0);
  EXPECT_EQ(cuMemAlloc_v2(&q, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 77u) << "an out-pointer is touched only on success";
  EXPECT_EQ(testing::AllocationCalls(), calls) << "what does not fit never reaches the driver";
  EXPECT_EQ(testing::Denied(0), denied + 2);
  Same();
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&q, 2 * kMiB), CUDA_SUCCESS);
  cuMemFree_v2(q);
}

TEST_F(Memory, AFullSliceStillGivesRoomInAChargedBlock) {
  SetLimit(0, base_ + 2 * kMiB);
  std::vector<CUdeviceptr> pointers(4);
  for (CUdeviceptr& p : pointers) ASSERT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_SUCCESS);
  CUdeviceptr q = 5;
  EXPECT_EQ(cuMemAlloc_v2(&q, kMiB / 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 5u);
  Same();
  for (const CUdeviceptr p : pointers) cuMemFree_v2(p);
}

TEST_F(Memory, ALimitThatIsRaisedCountsAtOnce) {
  SetLimit(0, base_);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  SetLimit(0, base_ + 4 * kMiB);
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_SUCCESS);
  SetLimit(0, kMiB);  // below what is held: nothing is taken away, nothing more is given
  std::size_t free = 1, total = 1;
  EXPECT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(total, kMiB);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
}

TEST_F(Memory, DriverErrorsAreTheDriversAndCostNothing) {
  CUdeviceptr p = 9;
  testing::FailNext(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  testing::FailNext(CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(cuMemAlloc_v2(&p, 100), CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(p, 9u);
  EXPECT_EQ(LedgerBytes(0), base_);
  ASSERT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_SUCCESS);
  testing::FailNext(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
  Same();
  EXPECT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE) << "freed twice: the driver says so";
  EXPECT_EQ(cuMemFree_v2(0x123456), CUDA_ERROR_INVALID_VALUE)
      << "unknown pointers go to the driver";
}

TEST_F(Memory, NullGoesToTheDriver) {
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 100), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr p;
  EXPECT_EQ(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
  std::size_t one = 0;
  EXPECT_EQ(cuMemGetInfo_v2(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetInfo_v2(&one, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(one, kRoom - base_);
  EXPECT_EQ(cuMemGetInfo_v2(nullptr, &one), CUDA_SUCCESS);
  EXPECT_EQ(one, kRoom);
  real::cuCtxSetCurrent(nullptr);
  EXPECT_EQ(cuMemAlloc_v2(&p, 100), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Memory, PitchIsChargedAsTheDriverSetsIt) {
  CUdeviceptr p = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&p, &pitch, 100, 20000, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  Same();
  SetLimit(0, base_ + 30 * kMiB);
  CUdeviceptr q = 3;
  // The guess (512 a row) fits, what the driver makes of it does not: freed again and refused.
  EXPECT_EQ(cuMemAllocPitch_v2(&q, &pitch, 100, 20000, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 3u);
  Same();
  cuMemFree_v2(p);
}

TEST_F(Memory, ManagedIsChargedInFull) {
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocManaged(&p, 64 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kManaged), 64 * kMiB);
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kManaged), 0u);
}

TEST_F(Memory, EachCardHasItsOwnBooksAndFreesCountWhereTheMemoryIs) {
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 8 * kMiB), CUDA_SUCCESS);
  OnCard(1);
  ASSERT_EQ(cuMemAlloc_v2(&q, 6 * kMiB), CUDA_SUCCESS);
  Same();
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);  // freed with the other card's context current
  Same();
  OnCard(0);
  ASSERT_EQ(cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  Same();
}

TEST_F(Memory, The32BitFormsAreChargedAlike) {
  CUdeviceptr_v1 p = 0, q = 3;
  ASSERT_EQ(cuMemAlloc(&p, 6 * kMiB), CUDA_SUCCESS);
  Same();
  SetLimit(0, LedgerBytes(0) + kMiB);
  EXPECT_EQ(cuMemAlloc(&q, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 3u);
  ASSERT_EQ(cuMemFree(p), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, InfoAndTotalShowTheSlice) {
  SetLimit(0, 1000 * kMiB);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 1000 * kMiB);
  EXPECT_EQ(free, 1000 * kMiB - base_);
  ASSERT_EQ(cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, 1000 * kMiB);
  EXPECT_EQ(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
  SetLimit(0, std::uint64_t{64} << 30);
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, (std::uint64_t{64} << 30) - DriverBytes(0)) << "never more than the card has";
}

}  // namespace
}  // namespace tessera::fence
