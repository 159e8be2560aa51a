// One context on card 0 of the fake driver, whose figure for this process can be had.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include "memory/driver_figure.h"
#include "memory/testing/fake_driver.h"
#include "slice/slice.h"

namespace tessera::fence::testing {

inline constexpr char kImageOf12MiB[] =
    ".version 7.0\n.global .b8 a[12582912];\n";  // its text takes 2 more

class OwnUsageFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    Install();
    SetLimit(0, std::uint64_t{10} << 30);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    contract::Store(OwnSlotOrNull()->host_pid, static_cast<std::uint32_t>(getpid()));
    base_ = LedgerBytes(0);
  }
  void TearDown() override {
    SetNeighbourBytes(0, 0);
    SetCodeBytes(14 * kMiB);
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
    TellOwnBytes(false);
    ForgetDriverFigure();
    contract::Store(OwnSlotOrNull()->host_pid, std::uint32_t{0});
  }
  // Another process of the slice, alive for everybody who looks.
  class Neighbour {
   public:
    Neighbour() : slot_(Ledger().Slot(100)) {
      slot_.owner = OwnSlotOrNull()->owner;
      high_ = Ledger().header().slots_high;
      Ledger().header().slots_high = 101;
    }
    ~Neighbour() {
      slot_.owner = 0;
      Ledger().header().slots_high = high_;
    }

   private:
    contract::LedgerSlot& slot_;
    std::uint64_t high_ = 0;
  };

  CUcontext context_ = nullptr;
  std::uint64_t base_ = 0;
};

}  // namespace tessera::fence::testing
