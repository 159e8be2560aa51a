// Two threads at the limit: what one could not pay is not the other's room.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "memory/testing/interleaving_fixture.h"
#include "memory/turn.h"

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

// The driver itself never holds more than the limit: what a small request may make it take is
// charged before, however far the limit is.
TEST_F(AtTheLimit, ASmallRequestKeepsItsBlockFreeOfALargeOneBesideIt) {
  SetLimit(0, base_ + 132 * kMiB);
  for (CUdeviceptr& p : fill_) ASSERT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_SUCCESS);
  testing::TakeHighestBytes(0);
  CUdeviceptr small = 0, large = 0;
  CUresult other = CUDA_ERROR_UNKNOWN;
  Before(Call::kMemAlloc, [&] { OtherThread([&] { other = cuMemAlloc_v2(&large, 130 * kMiB); }); });
  EXPECT_EQ(cuMemAlloc_v2(&small, kMiB / 2), CUDA_SUCCESS);
  EXPECT_EQ(other, CUDA_ERROR_OUT_OF_MEMORY) << "2 MiB of it are the small one's";
  EXPECT_LE(testing::TakeHighestBytes(0), base_ + 132 * kMiB);
  EXPECT_EQ(cuMemFree_v2(small), CUDA_SUCCESS);
  EmptyFill();
}

TEST_F(AtTheLimit, ThreadsThatRaceWithSmallRequestsPassItByOneBlockAtMost) {
  for (const std::uint64_t size : {kMiB, kMiB * 3 / 4, kMiB / 2}) {
    SetLimit(0, base_ + 160 * kMiB);
    testing::TakeHighestBytes(0);
    std::vector<std::thread> threads;
    std::atomic<int> granted = 0, refused = 0;
    for (int n = 0; n < 8; ++n) {
      threads.emplace_back([&, n] {
        real::cuCtxSetCurrent(context_);
        std::minstd_rand random(n + 1);
        std::vector<CUdeviceptr> live;
        for (int i = 0; i < 1500; ++i) {
          CUdeviceptr p = 0;
          const std::uint64_t bytes = i % 5 == 0 ? (1 + random() % 30) * 2 * kMiB : size;
          if (cuMemAlloc_v2(&p, bytes) == CUDA_SUCCESS) {
            live.push_back(p);
            ++granted;
          } else {
            ++refused;
          }
          while (!live.empty() && (live.size() > 12 || random() % 3 == 0)) {
            cuMemFree_v2(live.back());
            live.pop_back();
          }
        }
        for (const CUdeviceptr p : live) cuMemFree_v2(p);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(granted, 0);
    EXPECT_GT(refused, 0);
    EXPECT_LE(testing::TakeHighestBytes(0), base_ + 162 * kMiB) << size / 1024 << " KiB";
    EXPECT_EQ(LedgerBytes(0), base_);
    Same();
  }
}

// A turn that nobody ends delays the others once.
TEST_F(AtTheLimit, ATurnThatWasLeftIsTakenOver) {
  FillWithAHole();
  alignas(Turn) unsigned char left[sizeof(Turn)];
  std::thread([&] { (new (left) Turn())->Wait(testing::SliceCard(0)); }).join();
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_ERROR_OUT_OF_MEMORY) << "as the driver has no room";
  (new (left) Turn())->Wait(testing::SliceCard(0));
  EXPECT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_ERROR_OUT_OF_MEMORY);
  SetLimit(0, kRoom);
  EmptyFill();
}

}  // namespace
}  // namespace tessera::fence
