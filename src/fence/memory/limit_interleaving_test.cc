// Two threads at the limit: what one could not pay is not the other's room.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/interleaving_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::After;
using testing::Before;
using testing::Call;
using testing::Held;
using testing::kMiB;
using testing::kRoom;
using testing::LedgerBytes;
using testing::SetLimit;

using Interleaving = testing::InterleavingFixture;

// A pool that holds memory: about to refuse, the fence asks it for what it has in vain. A place to
// stop a thread between its driver call and the books.
class AtTheLimit : public Interleaving {
 protected:
  void SetUp() override {
    Interleaving::SetUp();
    ASSERT_EQ(cuMemAllocAsync(&held_, 8 * kMiB, nullptr), CUDA_SUCCESS);
    base_ += 8 * kMiB;
  }
  void TearDown() override {
    SetLimit(0, kRoom);
    EXPECT_EQ(cuMemFreeAsync(held_, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    Interleaving::TearDown();
  }
  // The limit is full with one block in which the books see room and the driver does not.
  void FillWithAHole() {
    SetLimit(0, base_ + 2 * kMiB);
    for (CUdeviceptr& p : fill_) ASSERT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree_v2(fill_.back()), CUDA_SUCCESS);
    fill_.pop_back();
  }
  void EmptyFill() {
    for (const CUdeviceptr p : fill_) EXPECT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_);
    Same();
  }
  CUdeviceptr held_ = 0;
  std::vector<CUdeviceptr> fill_ = std::vector<CUdeviceptr>(4);
};

TEST_F(AtTheLimit, ABlockThatNobodyCouldPayIsNobodysRoom) {
  FillWithAHole();
  CUdeviceptr first = 0, second = 0;
  CUresult other = CUDA_ERROR_UNKNOWN;
  After(Call::kMemAlloc, [&] {
    Before(Call::kPoolTrim,
           [&] { OtherThread([&] { other = cuMemAlloc_v2(&second, kMiB / 2); }); });
  });
  EXPECT_EQ(cuMemAlloc_v2(&first, kMiB / 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(other, CUDA_ERROR_OUT_OF_MEMORY) << "its block is beyond the limit as well";
  EXPECT_LE(LedgerBytes(0), base_ + 2 * kMiB);
  Same();
  if (second != 0) {
    EXPECT_EQ(cuMemFree_v2(second), CUDA_SUCCESS);
  }
  Same();
  EmptyFill();
}

TEST_F(AtTheLimit, ABlockThatASecondThreadPaysServesBoth) {
  FillWithAHole();
  CUdeviceptr first = 0, second = 0;
  CUresult other = CUDA_ERROR_UNKNOWN;
  After(Call::kMemAlloc, [&] {
    Before(Call::kPoolTrim, [&] {
      SetLimit(0, base_ + 4 * kMiB);
      OtherThread([&] { other = cuMemAlloc_v2(&second, kMiB / 2); });
    });
  });
  EXPECT_EQ(cuMemAlloc_v2(&first, kMiB / 2), CUDA_SUCCESS);
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + 4 * kMiB);
  Same();
  EXPECT_EQ(cuMemFree_v2(first), CUDA_SUCCESS);
  Same();
  EXPECT_EQ(cuMemFree_v2(second), CUDA_SUCCESS);
  EmptyFill();
}

TEST_F(AtTheLimit, ARefusedArrayTakesNoOthersBlockWithIt) {
  SetLimit(0, base_ + 2 * kMiB);
  const CUDA_ARRAY_DESCRIPTOR large{512, 512, CU_AD_FORMAT_FLOAT, 1};  // 1 MiB
  const CUDA_ARRAY_DESCRIPTOR small{256, 256, CU_AD_FORMAT_FLOAT, 1};  // 256 KiB
  CUarray first = nullptr, second = nullptr, third = nullptr, refused = nullptr;
  CUresult others[2] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
  ASSERT_EQ(cuArrayCreate_v2(&first, &large), CUDA_SUCCESS);
  After(Call::kCreateArray, [&] {
    OtherThread([&] { others[0] = cuArrayCreate_v2(&second, &large); });
    Before(Call::kPoolTrim,
           [&] { OtherThread([&] { others[1] = cuArrayCreate_v2(&third, &small); }); });
  });
  EXPECT_EQ(cuArrayCreate_v2(&refused, &large), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(others[0], CUDA_SUCCESS);
  EXPECT_EQ(others[1], CUDA_ERROR_OUT_OF_MEMORY) << "the block is full";
  EXPECT_EQ(Held(0, Kind::kArray), 2 * kMiB);
  for (CUarray array : {first, second, third}) {
    if (array != nullptr) {
      EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(Held(0, Kind::kArray), 0u);
  EXPECT_EQ(LedgerBytes(0), base_);
}

}  // namespace
}  // namespace tessera::fence
