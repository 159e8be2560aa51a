// What two threads do to each other's books: the driver of the tests runs the second thread's part
// in the middle of a call of the first, so that every order of events is certain.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "memory/contexts.h"
#include "memory/testing/fake_driver.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::After;
using testing::Before;
using testing::Call;
using testing::DriverBytes;
using testing::Held;
using testing::kContextBytes;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;

constexpr std::uint64_t kRoom = std::uint64_t{10} << 30;

class Interleaving : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::Install();
    SetLimit(0, kRoom);
    SetLimit(1, kRoom);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    base_ = LedgerBytes(0);
    ASSERT_EQ(base_, kContextBytes);
  }
  void TearDown() override {
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
    EXPECT_TRUE(contract::IsValid(testing::Ledger()));
  }
  void Same() { EXPECT_EQ(LedgerBytes(0), DriverBytes(0)); }
  // A thread with the same current context, to its end.
  void OtherThread(const std::function<void()>& what) {
    std::thread([&] {
      real::cuCtxSetCurrent(context_);
      what();
    }).join();
  }
  // The same where the thread may have to wait for the caller: begun here, joined by Join(). Comes
  // back when it is done or has had time enough to do harm.
  void BeginOther(const std::function<void()>& what) {
    done_ = false;
    other_ = std::thread([this, what] {
      real::cuCtxSetCurrent(context_);
      what();
      done_ = true;
    });
    const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!done_ && std::chrono::steady_clock::now() < enough) std::this_thread::yield();
  }
  void Join() {
    if (other_.joinable()) other_.join();
  }
  CUmemoryPool NewPool() {
    CUmemPoolProps props{};
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    cuuint64_t keep = UINT64_MAX;
    EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), CUDA_SUCCESS);
    return pool;
  }

  CUcontext context_ = nullptr;
  std::uint64_t base_ = 0;
  std::thread other_;
  std::atomic<bool> done_ = false;
};

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
