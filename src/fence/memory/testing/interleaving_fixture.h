// Two threads in one process: the fake driver runs the second thread's part in the middle of a call
// of the first, so that every order of events is certain.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence::testing {

class InterleavingFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    Install();
    SetLimit(0, kRoom);
    SetLimit(1, kRoom);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    base_ = LedgerBytes(0);
    ASSERT_EQ(base_, kContextBytes);
  }
  void TearDown() override {
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
    EXPECT_TRUE(contract::IsValid(Ledger()));
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

}  // namespace tessera::fence::testing
