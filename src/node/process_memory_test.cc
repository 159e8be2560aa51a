#include "node/process_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

class ProcessMemoryTest : public ScratchTest {
 protected:
  // A process of `user` that lives until the test ends.
  pid_t Sleeper(uid_t user) {
    int ready[2];
    if (pipe(ready) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (user != getuid() && (setgid(user) != 0 || setuid(user) != 0)) _exit(1);
      if (write(ready[1], "+", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char answer = 0;
    EXPECT_EQ(read(ready[0], &answer, 1), 1);
    close(ready[0]);
    close(ready[1]);
    children_.push_back(child);
    return child;
  }
  void TearDown() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    ScratchTest::TearDown();
  }
  std::vector<pid_t> children_;
};

TEST_F(ProcessMemoryTest, ReadsTheBeginningOfWhatTheKernelSays) {
  ProcessMemory memory;
  const Result<std::string> maps = memory.Read(getpid(), "maps", 1 << 24);
  ASSERT_TRUE(maps) << maps.error().message;
  EXPECT_NE(maps->find("node_test"), std::string::npos);
  EXPECT_EQ(memory.Read(getpid(), "maps", 100)->size(), 100u);
  const Result<std::string> arguments = memory.Read(getpid(), "cmdline", 4096);
  ASSERT_TRUE(arguments);
  EXPECT_NE(arguments->find("node_test"), std::string::npos);
}

TEST_F(ProcessMemoryTest, NamesWhatMayNotBeRead) {
  ProcessMemory memory;
  const Result<std::string> gone = memory.Read(0x3fffff, "maps", 100);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_TRUE(memory.Read(getpid(), "maps", 100)) << "the next one is answered";
}

// A pipe that nobody writes to stands for memory that never comes.
TEST_F(ProcessMemoryTest, OneThatHangsCostsItsTenantAndNobodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "needs users of its own";
  const std::string deaf = folder_ + "/deaf";
  ASSERT_EQ(mkfifo(deaf.c_str(), 0600), 0);
  const int held = fcntl(open(deaf.c_str(), O_PATH), F_DUPFD, 55);
  ASSERT_EQ(held, 55);
  const pid_t hangs = Sleeper(54321), same_user = Sleeper(54321), other = Sleeper(54322);
  close(held);
  {
    ProcessMemory memory;
    EXPECT_TRUE(memory.Read(hangs, "cmdline", 100));
    const Result<std::string> late = memory.Read(hangs, "fd/55", 100);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    const Result<std::string> sibling = memory.Read(same_user, "cmdline", 100);
    ASSERT_FALSE(sibling) << "not asked again in this look";
    EXPECT_EQ(sibling.error().code, Code::kDeadlineExceeded);
    EXPECT_TRUE(memory.Read(other, "cmdline", 100));
    EXPECT_TRUE(memory.Read(getpid(), "cmdline", 100));
  }
  ProcessMemory next;
  EXPECT_TRUE(next.Read(same_user, "cmdline", 100)) << "the child died: asked again";
}

}  // namespace
}  // namespace tessera::node
