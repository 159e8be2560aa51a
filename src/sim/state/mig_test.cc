#include <gtest/gtest.h>

#include "sim/state/node_state.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::TestNode;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A card of 23,028 MiB with devices of 1,000 and 500 MiB.
NodeDescription Cut() {
  NodeDescription node = DefaultNode(1);
  node.specs[0].mig_capable = node.specs[0].mig_enabled = 1;
  node.specs[0].mig_count = 2;
  node.specs[0].mig[0].memory_bytes = 1000 * kMiB;
  node.specs[0].mig[1].memory_bytes = 501 * kMiB;  // half a block is nobody's
  return node;
}

TEST(Mig, ADeviceRefusesBeyondItsOwnMemory) {
  TestNode node(Cut());
  UseMigDevice(0, 1);
  EXPECT_EQ(FreeBytes(0), 500 * kMiB);
  EXPECT_FALSE(ChargeCard(0, 502 * kMiB));
  EXPECT_EQ(UsedOnMigDevice(0, 1), 0u);
  EXPECT_TRUE(ChargeCard(0, 500 * kMiB));
  EXPECT_FALSE(ChargeCard(0, 2 * kMiB));
  EXPECT_EQ(FreeBytes(0), 0u);
  EXPECT_EQ(UsedOnMigDevice(0, 1), 500 * kMiB);
  EXPECT_EQ(UsedOnMigDevice(0, 0), 0u);
  EXPECT_EQ(UsedBytes(0), 500 * kMiB);
  UnchargeCard(0, 500 * kMiB);
  EXPECT_EQ(FreeBytes(0), 500 * kMiB);
}

TEST(Mig, DevicesDoNotTakeFromEachOther) {
  TestNode node(Cut());
  UseMigDevice(0, 0);
  ASSERT_TRUE(ChargeCard(0, 1000 * kMiB));
  EXPECT_TRUE(testing::Join(testing::Start([] {
    UseMigDevice(0, 1);
    return FreeBytes(0) == 500 * kMiB && ChargeCard(0, 500 * kMiB) && FreeBytes(0) == 0 &&
           UsedOnMigDevice(0, 0) == 1000 * kMiB;
  })));
  EXPECT_EQ(UsedOnMigDevice(0, 1), 0u) << "the dead one holds nothing";
}

TEST(Mig, ProcessesOnOneDeviceShareIt) {
  TestNode node(Cut());
  UseMigDevice(0, 0);
  ASSERT_TRUE(ChargeCard(0, 600 * kMiB));
  const pid_t child = testing::Start([] {
    UseMigDevice(0, 0);
    return !ChargeCard(0, 402 * kMiB) && ChargeCard(0, 400 * kMiB);
  });
  EXPECT_TRUE(testing::Join(child));
  EXPECT_TRUE(ChargeCard(0, 400 * kMiB));
}

}  // namespace
}  // namespace tessera::sim
