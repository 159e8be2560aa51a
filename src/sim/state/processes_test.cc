#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/state/node_state.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::Join;
using testing::Start;
using testing::TestNode;

TEST(NodeFile, IsCreatedOnce) {
  TestNode node;
  EXPECT_EQ(CreateNode(node.path().c_str(), DefaultNode(1)), EEXIST);
  EXPECT_EQ(CreateNode("/nonexistent-folder/node", DefaultNode(1)), ENOENT);
}

TEST(NodeFile, OfAnotherKindIsRefused) {
  char path[] = "/tmp/sim-not-a-node.XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(MapNode(path), nullptr);
  EXPECT_EQ(errno, EPROTO);
  ASSERT_EQ(ftruncate(fd, sizeof(NodeState)), 0);
  EXPECT_EQ(MapNode(path), nullptr) << "right size, no magic";
  EXPECT_EQ(errno, EPROTO);
  close(fd);
  unlink(path);
  EXPECT_EQ(MapNode(path), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST(NodeFile, IsFoundThroughTheEnvironment) {
  TestNode node;
  EXPECT_TRUE(Join(Start([&] {
    setenv(kEnvNodePath, node.path().c_str(), 1);
    UseNode(nullptr);
    NodeState* found = AttachNode();
    return found != nullptr && found->card_count == 1 &&
           strcmp(found->specs[0].name, "NVIDIA A10G") == 0;
  })));
  EXPECT_TRUE(Join(Start([] {
    setenv(kEnvNodePath, "/nonexistent", 1);
    UseNode(nullptr);
    return AttachNode() == nullptr && OwnProcess() == -1 && !ChargeCard(0, 1) && FreeBytes(0) == 0;
  })));
}

TEST(Processes, SlotIsKeptAndNamed) {
  TestNode node;
  const int slot = OwnProcess();
  ASSERT_GE(slot, 0);
  EXPECT_EQ(OwnProcess(), slot);
  EXPECT_EQ(VisiblePid(node->processes[slot]), getpid());
  EXPECT_TRUE(ProcessAlive(node->processes[slot]));
  EXPECT_STRNE(node->processes[slot].command, "");
  EXPECT_EQ(node->processes[slot].cgroup[0], '/');
}

TEST(Processes, ADeadOneIsNotAlive) {
  TestNode node;
  int slot = -1;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = Start([&] {
    const int own = OwnProcess();
    if (write(ready[1], &own, sizeof own) != sizeof own) return false;
    pause();
    return true;
  });
  ASSERT_EQ(read(ready[0], &slot, sizeof slot), static_cast<ssize_t>(sizeof slot));
  EXPECT_TRUE(ProcessAlive(node->processes[slot]));
  EXPECT_EQ(VisiblePid(node->processes[slot]), child);
  testing::KillToZombie(child);
  EXPECT_FALSE(ProcessAlive(node->processes[slot])) << "a zombie holds nothing";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(ProcessAlive(node->processes[slot]));
  SweepDeadProcesses();
  EXPECT_EQ(node->processes[slot].owner.load(), 0u);
  close(ready[0]);
  close(ready[1]);
}

TEST(Processes, ReusedPidIsNotTheSameProcess) {
  TestNode node;
  ProcessSlot& slot = node->processes[OwnProcess()];
  slot.owner.fetch_add(std::uint64_t{1} << 22);  // started a tick later
  EXPECT_FALSE(ProcessAlive(slot));
}

// The program that exec starts does not hold what the one before it held, whether it uses the
// driver or not.
TEST(Processes, ExecGivesEverythingBack) {
  TestNode node;
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = Start([&] {
    if (!ChargeCard(0, 64 << 20)) return false;
    execl("/bin/sleep", "sleep", "60", nullptr);
    return false;
  });
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 0) << "exec closes the pipe";
  close(ready[0]);
  std::uint64_t used = 1;
  for (int i = 0; i < 100 && used != 0; ++i) {
    usleep(10'000);
    used = UsedBytes(0);
  }
  EXPECT_EQ(used, 0u);
  testing::Kill(child);
}

TEST(Processes, EverySlotTakenIsRefusedAndRecovers) {
  TestNode node;
  // Owners that look alive: this very process, under another name space than the one it looks for
  // itself in.
  const std::uint64_t self = node->processes[OwnProcess()].owner.load();
  const std::uint64_t image = node->processes[OwnProcess()].image.load();
  const std::uint64_t space = node->processes[OwnProcess()].pid_namespace.load();
  for (int i = 0; i < kMaxProcesses; ++i) {
    node->processes[i].owner.store(self);
    node->processes[i].image.store(image);
    node->processes[i].pid_namespace.store(space);
  }
  node->slots_high.store(kMaxProcesses);
  EXPECT_TRUE(Join(Start([] { return OwnProcess() == -1 && !ChargeCard(0, 1); })));
  for (int i = 100; i < kMaxProcesses; ++i) node->processes[i].owner.store(self + (1 << 22));
  EXPECT_TRUE(Join(Start([] { return OwnProcess() >= 100 && ChargeCard(0, 1); })));
}

}  // namespace
}  // namespace tessera::sim
