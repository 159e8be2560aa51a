#include "watch/watcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"

namespace tessera::watch {
namespace {

// A child that waits to be told.
class Child {
 public:
  Child() {
    pid_ = fork();
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Finding Found(contract::BypassAction action) const {
    Finding finding;
    finding.process = base::ReadProcessStat(pid_)->identity;
    finding.text = "slice chat: pid is beside its fence";
    finding.action = action;
    return finding;
  }
  // State letter once it is `wanted`, or the last one seen after 10 s.
  char WaitForState(char wanted) const {
    char state = '?';
    for (int i = 0; i < 10000 && state != wanted; ++i) {
      const auto stat = base::ReadProcessStat(pid_);
      state = stat ? stat->state : '?';
      usleep(1000);
    }
    return state;
  }

 private:
  pid_t pid_;
};

TEST(Answer, ReportsPausesAndKills) {
  const Child child;
  EXPECT_EQ(*Answer(child.Found(contract::BypassAction::kReport)),
            "slice chat: pid is beside its fence");
  EXPECT_EQ(*Answer(child.Found(contract::BypassAction::kPause)),
            "slice chat: pid is beside its fence: stopped");
  EXPECT_EQ(child.WaitForState('T'), 'T');
  EXPECT_EQ(*Answer(child.Found(contract::BypassAction::kKill)),
            "slice chat: pid is beside its fence: killed");
  EXPECT_EQ(child.WaitForState('Z'), 'Z');
}

TEST(Answer, NeverHitsAPidThatBecameSomebodyElses) {
  const Child child;
  Finding finding = child.Found(contract::BypassAction::kKill);
  finding.process.start_ticks -= 1;
  const Result<std::string> answer = Answer(finding);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kNotFound);
  EXPECT_NE(child.WaitForState('S'), 'Z');
}

TEST(Answer, OfTheWholeSliceIsAReport) {
  Finding finding;
  finding.text = "slice chat: its ledger cannot be believed";
  finding.action = contract::BypassAction::kKill;
  EXPECT_EQ(*Answer(finding), finding.text);
}

// The watcher ends by itself when its slice is not among the living, leaves no child behind and
// lets go of stderr.
TEST(Watcher, EndsWithItsSlice) {
  std::string root = ::testing::TempDir() + "/watch-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  WatcherPlan plan;
  plan.root.path = root;
  plan.record.slice.id = "gone-1";
  plan.record.launcher = base::OwnIdentity();
  plan.look_every = std::chrono::milliseconds(10);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  const Result<WatcherStarted> started = StartWatcher(plan);
  dup2(saved, STDERR_FILENO);
  close(saved);
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_FALSE(started->second_wall) << "no driver here";
  EXPECT_FALSE(started->second_wall_reason.empty());
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "end of file: nobody holds stderr any more";
  close(ends[0]);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child is left to the command";
  EXPECT_EQ(errno, ECHILD);
  base::RemoveTree(root);
}

}  // namespace
}  // namespace tessera::watch
