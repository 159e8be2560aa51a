#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/state/node_state.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::TestNode;

TEST(Faults, NoneByDefault) {
  TestNode node;
  EXPECT_EQ(InjectedFault("cuMemAlloc_v2", 0), 0);
}

TEST(Faults, MatchByNamePrefixAndCard) {
  TestNode node(2);
  ASSERT_GE(AddFault("cuMemAlloc_v2", 1, 2, 0, 1000, 0, 0), 0);
  EXPECT_EQ(InjectedFault("cuMemAlloc_v2", 1), 2);
  EXPECT_EQ(InjectedFault("cuMemAlloc_v2", 0), 0);
  EXPECT_EQ(InjectedFault("cuMemAlloc", 1), 0);
  ASSERT_GE(AddFault("nvmlDevice*", -1, 15, 0, 1000, 0, 0), 0);
  EXPECT_EQ(InjectedFault("nvmlDeviceGetName", 0), 15);
  EXPECT_EQ(InjectedFault("nvmlInit_v2", -1), 0);
  ClearFaults();
  EXPECT_EQ(InjectedFault("nvmlDeviceGetName", 0), 0);
  EXPECT_EQ(node->fault_count.load(), 0u);
}

TEST(Faults, SkipAndCount) {
  TestNode node;
  ASSERT_GE(AddFault("cuInit", -1, 999, 0, 1000, 2, 3), 0);
  std::vector<int> seen;
  for (int i = 0; i < 8; ++i) seen.push_back(InjectedFault("cuInit", -1));
  EXPECT_EQ(seen, (std::vector<int>{0, 0, 999, 999, 999, 0, 0, 0}));
  EXPECT_EQ(node->fault_count.load(), 0u) << "a used-up fault is out of force";
}

TEST(Faults, DelayIsServed) {
  TestNode node;
  ASSERT_GE(AddFault("cuInit", -1, 0, 20'000'000, 1000, 0, 1), 0);
  const std::uint64_t before = NowNs();
  EXPECT_EQ(InjectedFault("cuInit", -1), 0);
  EXPECT_GE(NowNs() - before, 20'000'000u);
}

TEST(Faults, DrawsAreTheSameForTheSameSeed) {
  std::vector<int> runs[2];
  for (std::vector<int>& run : runs) {
    TestNode node;
    ASSERT_GE(AddFault("cuInit", -1, 1, 0, 300, 0, 0), 0);
    for (int i = 0; i < 1000; ++i) run.push_back(InjectedFault("cuInit", -1));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NEAR(std::count(runs[0].begin(), runs[0].end(), 1), 300, 60);
}

TEST(Faults, TableHasAnEnd) {
  TestNode node;
  for (int i = 0; i < kMaxFaults; ++i) EXPECT_EQ(AddFault("x", -1, 1, 0, 1000, 0, 0), i);
  EXPECT_EQ(AddFault("x", -1, 1, 0, 1000, 0, 0), -1);
}

TEST(Xids, AreNumbered) {
  TestNode node;
  RaiseXid(0, 79);
  RaiseXid(0, 31);
  RaiseXid(5, 1);
  EXPECT_EQ(node->cards[0].xid_sequence.load(), 2u);
  EXPECT_EQ(node->cards[0].xids[0].code.load(), 79u);
  EXPECT_EQ(node->cards[0].xids[1].code.load(), 31u);
}

}  // namespace
}  // namespace tessera::sim
