// Memory of a card among processes that come, go and are killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "sim/state/node_state.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::Join;
using testing::Kill;
using testing::Start;
using testing::TestNode;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::uint64_t SumOfSlots(const NodeState& node, int card) {
  std::uint64_t sum = 0;
  for (const ProcessSlot& slot : node.processes) sum += HeldBytes(slot.cards[card]);
  return sum;
}

TEST(Memory, ChargesWholeBlocksAndRefusesWhatIsNotThere) {
  TestNode node;
  const std::uint64_t all = node->specs[0].memory_bytes - node->specs[0].reserved_bytes;
  EXPECT_EQ(FreeBytes(0), all);
  EXPECT_TRUE(ChargeCard(0, 1));
  EXPECT_EQ(FreeBytes(0), all - kBlockBytes);
  EXPECT_FALSE(ChargeCard(0, all));
  EXPECT_FALSE(ChargeCard(0, ~std::uint64_t{0}));
  EXPECT_EQ(UsedBytes(0), kBlockBytes) << "a refused charge changes nothing";
  EXPECT_TRUE(ChargeCard(0, all - kBlockBytes));
  EXPECT_EQ(FreeBytes(0), 0u);
  UnchargeCard(0, all);
  EXPECT_EQ(FreeBytes(0), all);
}

TEST(Memory, UnknownCardIsRefused) {
  TestNode node;
  EXPECT_FALSE(ChargeCard(1, kMiB));
  EXPECT_FALSE(ChargeCard(-1, kMiB));
  EXPECT_EQ(FreeBytes(16), 0u);
}

TEST(Memory, MoreGivenBackThanHeldIsNotLetThrough) {
  TestNode node;
  EXPECT_TRUE(ChargeCard(0, 4 * kMiB));
  UnchargeCard(0, 100 * kMiB);
  EXPECT_EQ(UsedBytes(0), 0u);
  EXPECT_EQ(SumOfSlots(*node, 0), 0u);
}

TEST(Memory, OfAnExitedProcessIsFreeAtOnce) {
  TestNode node;
  const std::uint64_t before = FreeBytes(0);
  EXPECT_TRUE(Join(Start([] { return ChargeCard(0, 5 * kGiB); })));
  EXPECT_EQ(FreeBytes(0), before);
}

TEST(Memory, OfAZombieIsThereForTheNextCharge) {
  TestNode node;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = Start([&] {
    if (!ChargeCard(0, 20 * kGiB) || write(ready[1], "x", 1) != 1) return false;
    pause();
    return true;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(ChargeCard(0, 20 * kGiB));
  testing::KillToZombie(child);
  EXPECT_TRUE(ChargeCard(0, 20 * kGiB));
  UnchargeCard(0, 20 * kGiB);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(Memory, ChildDoesNotInheritItsParentsSlot) {
  TestNode node;
  ASSERT_TRUE(ChargeCard(0, kGiB));
  const int parent = OwnProcess();
  EXPECT_TRUE(Join(Start([&] { return OwnProcess() != parent && ChargeCard(0, kGiB); })));
  EXPECT_EQ(UsedBytes(0), kGiB);
}

TEST(Memory, ThreadsNeverPassTheCard) {
  TestNode node;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 20'000; ++round) {
        if (ChargeCard(0, 8 * kMiB)) UnchargeCard(0, 8 * kMiB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(UsedBytes(0), 0u);
}

TEST(Memory, RacingProcessesNeverPassTheCard) {
  NodeDescription description = DefaultNode(1);
  description.specs[0].memory_bytes = 512 * kMiB;
  description.specs[0].reserved_bytes = 0;
  TestNode node(description);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(Start([&] {
      for (int round = 0; round < 500; ++round) {
        const bool got = ChargeCard(0, 200 * kMiB);
        if (SumOfSlots(*node, 0) > 512 * kMiB) return false;
        if (got) UnchargeCard(0, 200 * kMiB);
      }
      return true;
    }));
  }
  for (pid_t child : children) EXPECT_TRUE(Join(child));
  EXPECT_EQ(UsedBytes(0), 0u);
}

// Users killed at random instants while they charge and give back: nothing is lost, nothing hangs.
TEST(Memory, SurvivesItsUsersKills) {
  TestNode node;
  const std::uint64_t before = FreeBytes(0);
  constexpr int kUsers = 3;
  const auto user = [] {
    // The test's own turn comes first: it is about where users die, not about how they compete.
    setpriority(PRIO_PROCESS, 0, 19);
    for (std::uint64_t i = 0;; ++i) {
      if (ChargeCard(0, (1 + i % 9) * 2 * kMiB)) {
        SubmitWork(0, static_cast<int>(i % kMaxEngines), 0, 1000);
        if (i % 3 != 0) UnchargeCard(0, (1 + i % 9) * 2 * kMiB);
      }
    }
    return true;
  };
  std::vector<pid_t> users;
  for (int i = 0; i < kUsers; ++i) users.push_back(Start(user));
  std::uint64_t random = 88172645463325252;
  for (int kills = 0; kills < SIM_STATE_KILLS; ++kills) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    pid_t& victim = users[random % kUsers];
    usleep(random >> 32 & 127);
    Kill(victim);
    victim = Start(user);
    if (kills % 100 == 0) {
      EXPECT_LE(UsedBytes(0), before);
    }
  }
  for (pid_t child : users) Kill(child);
  SweepDeadProcesses();
  EXPECT_EQ(FreeBytes(0), before);
  EXPECT_EQ(SumOfSlots(*node, 0), 0u);
  const std::uint64_t now = NowNs();
  EXPECT_GE(SubmitWork(0, 0, 0, 1000), now) << "the engine still takes work";
}

}  // namespace
}  // namespace tessera::sim
