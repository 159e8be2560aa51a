// One context on each card of the fake driver, the first one current; at the end nothing is
// charged.
#pragma once

#include <gtest/gtest.h>

#include "memory/testing/fake_driver.h"

namespace tessera::fence::testing {

inline constexpr std::uint64_t kRoom = std::uint64_t{10} << 30;

class MemoryFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    Install();
    SetLimit(0, kRoom);
    SetLimit(1, kRoom);
    ASSERT_EQ(cuCtxCreate_v4(&other_, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    base_ = LedgerBytes(0);
    EXPECT_EQ(base_, kContextBytes);
  }
  void TearDown() override {
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDestroy_v2(other_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
    EXPECT_EQ(LedgerBytes(1), 0u);
    EXPECT_TRUE(contract::IsValid(Ledger()));
  }
  void Same() {
    EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
    EXPECT_EQ(LedgerBytes(1), DriverBytes(1));
  }
  void OnCard(int card) { real::cuCtxSetCurrent(card == 0 ? context_ : other_); }

  CUcontext context_ = nullptr, other_ = nullptr;
  std::uint64_t base_ = 0;
};

inline CUmemAllocationProp OnDevice(int card) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, card};
  return prop;
}

}  // namespace tessera::fence::testing
