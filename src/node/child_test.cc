#include "node/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

namespace tessera::node {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

ChildPlan Plan(std::int64_t wait_ns) {
  ChildPlan plan;
  plan.what = "test";
  plan.wait_ns = wait_ns;
  return plan;
}

int Tell(int to, const std::string& text) {
  return write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

TEST(Child, GivesItsAnswerAndItsExitCode) {
  const Result<ChildEnd> end =
      RunChild(Plan(30 * kSecond), [](int to) { return Tell(to, "yes") + 7; });
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->output, "yes");
  EXPECT_EQ(end->exit_code, 7);
}

TEST(Child, OneThatDiesHasNoExitCode) {
  const Result<ChildEnd> end = RunChild(Plan(30 * kSecond), [](int) { return raise(SIGKILL); });
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, std::nullopt);
}

TEST(Child, OneThatSaysNothingIsKilledAndGone) {
  pid_t child = 0;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Result<ChildEnd> end = RunChild(Plan(kSecond / 5), [](int) {
    for (;;) pause();
    return 0;
  });
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(waitpid(-1, &child, WNOHANG), -1) << "no child is left";
  // One that closed its side and goes on is late as well.
  EXPECT_FALSE(RunChild(Plan(kSecond / 5), [](int to) {
    close(to);
    for (;;) pause();
    return 0;
  }));
  close(ends[0]);
  close(ends[1]);
}

TEST(Child, OneThatSaysTooMuchIsStopped) {
  ChildPlan plan = Plan(30 * kSecond);
  plan.most_bytes = 10;
  const Result<ChildEnd> end =
      RunChild(plan, [](int to) { return Tell(to, "more than ten bytes"); });
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, Code::kDataLoss);
}

// A child that never dies must keep nobody waiting: no pipe, no lock of ours.
TEST(Child, HoldsNothingOfTheCaller) {
  const int ours = fcntl(open("/dev/null", O_RDONLY), F_DUPFD, 77);
  ASSERT_EQ(ours, 77);
  const Result<ChildEnd> end = RunChild(Plan(30 * kSecond), [](int to) {
    std::string open_ones;
    for (int fd = 0; fd < 200; ++fd) {
      char path[64] = {};
      if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1) < 0)
        continue;
      if (fd != to) open_ones += std::to_string(fd) + path + ";";
    }
    return Tell(to, open_ones);
  });
  close(ours);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->output, "0/dev/null;1/dev/null;2/dev/null;");
}

TEST(Child, AProgramSpeaksByItsStreams) {
  ChildPlan plan = Plan(30 * kSecond);
  plan.speaks = ChildSpeaks::kByStdoutAndStderr;
  const auto run = [](int) { return execl("/bin/sh", "sh", "-c", "echo a; echo b >&2", nullptr); };
  EXPECT_EQ(RunChild(plan, run)->output, "a\nb\n");
  plan.speaks = ChildSpeaks::kByStdout;
  EXPECT_EQ(RunChild(plan, run)->output, "a\n");
}

TEST(Child, EndsAreWaitedForABoundedTime) {
  const pid_t child = fork();
  if (child == 0) _exit(5);
  const std::optional<Ended> ended = WaitForEnd(child, 30 * kSecond);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 5);
  const pid_t stays = fork();
  if (stays == 0) {
    for (;;) pause();
  }
  EXPECT_FALSE(WaitForEnd(stays, kSecond / 10));
  EXPECT_FALSE(IsLeft(stays));
  EXPECT_EQ(Bury(stays), std::nullopt);
  EXPECT_EQ(kill(stays, 0), -1) << "killed and reaped";
}

}  // namespace
}  // namespace tessera::node
