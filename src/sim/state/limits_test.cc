#include <gtest/gtest.h>
#include <string.h>

#include <string>

#include "sim/state/node_state.h"
#include "sim/state/own.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::TestNode;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string OwnCgroup(const NodeState& node) { return node.processes[OwnProcess()].cgroup; }

TEST(Limits, HoldForTheCgroupAndThoseBelow) {
  EXPECT_TRUE(InCgroup("/a/b", "/a"));
  EXPECT_TRUE(InCgroup("/a", "/a"));
  EXPECT_TRUE(InCgroup("/a", "/"));
  EXPECT_FALSE(InCgroup("/ab", "/a"));
  EXPECT_FALSE(InCgroup("/", "/a"));
}

TEST(Limits, AChargeBeyondIsRefused) {
  TestNode node(2);
  ASSERT_TRUE(ChargeCard(0, 100 * kMiB));
  ASSERT_TRUE(SetMemoryLimit(0, OwnCgroup(*node), 0, 300 * kMiB));
  EXPECT_TRUE(ChargeCard(0, 200 * kMiB));
  EXPECT_FALSE(ChargeCard(0, 2 * kMiB));
  EXPECT_TRUE(ChargeCard(1, 1000 * kMiB)) << "the other card has no limit";
  const MemoryLimitView view = GetMemoryLimit(0, OwnCgroup(*node));
  EXPECT_EQ(view.hard, 300 * kMiB);
  EXPECT_EQ(view.used, 300 * kMiB);
  EXPECT_EQ(UsedBytes(0), 300 * kMiB);
  ASSERT_TRUE(SetMemoryLimit(0, OwnCgroup(*node), 0, kNoMemoryLimit));
  EXPECT_TRUE(ChargeCard(0, 2 * kMiB));
  EXPECT_EQ(node->limit_count.load(), 0u);
}

TEST(Limits, CountWhatOtherProcessesOfTheCgroupHold) {
  TestNode node;
  ASSERT_TRUE(SetMemoryLimit(0, "/", 0, 300 * kMiB));
  ASSERT_TRUE(ChargeCard(0, 200 * kMiB));
  EXPECT_TRUE(testing::Join(
      testing::Start([] { return !ChargeCard(0, 102 * kMiB) && ChargeCard(0, 100 * kMiB); })));
  EXPECT_TRUE(ChargeCard(0, 100 * kMiB)) << "the dead one counts no more";
}

TEST(Limits, OfAnotherCgroupDoesNotConcernUs) {
  TestNode node;
  ASSERT_TRUE(SetMemoryLimit(0, "/somebody/else", 0, 2 * kMiB));
  EXPECT_TRUE(ChargeCard(0, 100 * kMiB));
  EXPECT_EQ(GetMemoryLimit(0, "/somebody/else").used, 0u);
}

TEST(Limits, BadOnesAreRefused) {
  TestNode node;
  EXPECT_FALSE(SetMemoryLimit(0, "", 0, 1));
  EXPECT_FALSE(SetMemoryLimit(0, "/" + std::string(300, 'x'), 0, 1));
  EXPECT_FALSE(SetMemoryLimit(3, "/a", 0, 1));
  for (int i = 0; i < kMaxMemoryLimits; ++i)
    EXPECT_TRUE(SetMemoryLimit(0, "/" + std::to_string(i), 0, 1));
  EXPECT_FALSE(SetMemoryLimit(0, "/one-more", 0, 1));
}

}  // namespace
}  // namespace tessera::sim
