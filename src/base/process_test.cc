#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/fd.h"

namespace tessera::base {
namespace {

TEST(Process, CommandMayHoldSpacesAndParentheses) {
  Result<ProcessStat> stat = ParseProcessStat(
      "77 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 0 123456 18 19 20 21 22 140000 "
      "0\n");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->identity.pid, 77);
  EXPECT_EQ(stat->command, "a) b (c)");
  EXPECT_EQ(stat->parent, 1);
  EXPECT_EQ(stat->threads, 3u);
  EXPECT_EQ(stat->identity.start_ticks, 123456u);
  EXPECT_EQ(stat->stack_start, 140000u);
}

TEST(Process, HalfALineIsAnError) {
  EXPECT_FALSE(ParseProcessStat(""));
  EXPECT_FALSE(ParseProcessStat("77 (x"));
  EXPECT_FALSE(ParseProcessStat("77 (x) S 1 2"));
}

TEST(Process, OwnProcessLivesAndZombiesDoNot) {
  EXPECT_TRUE(Alive(OwnIdentity()));
  ProcessIdentity other = OwnIdentity();
  ++other.start_ticks;
  EXPECT_FALSE(Alive(other));

  int go[2];
  ASSERT_EQ(pipe(go), 0);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    close(go[1]);
    _exit(read(go[0], &byte, 1) < 0);
  }
  close(go[0]);
  Result<ProcessStat> stat = ReadProcessStat(child);
  ASSERT_TRUE(stat);
  EXPECT_TRUE(Alive(stat->identity));
  close(go[1]);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(Alive(stat->identity)) << "a zombie";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(Alive(stat->identity)) << "reaped";
}

TEST(Process, HiddenIsNotGone) {
  if (geteuid() != 0) GTEST_SKIP() << "mounts a /proc";
  pid_t child = fork();
  if (child == 0) {
    // A /proc that shows each user only its own processes, as hardened machines mount it.
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("proc", "/proc", "proc", 0, "hidepid=2") != 0) {
      _exit(77);
    }
    if (setgid(54321) != 0 || setuid(54321) != 0) _exit(1);
    bool seen = ReadProcessStat(1).has_value();
    if (seen) _exit(77);  // this kernel does not hide
    _exit(IsHidden(1) && Alive({1, 12345}) && !IsHidden(4'000'000) && !Alive({4'000'000, 1}) ? 0
                                                                                             : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no such /proc to be had";
  EXPECT_EQ(status, 0);
}

TEST(Process, NamesNamespaceAndUserOfWhatItMaySee) {
  EXPECT_NE(NamespaceInode(getpid(), "mnt"), 0u);
  EXPECT_EQ(NamespaceInode(0x3fffff, "mnt"), 0u);
  EXPECT_EQ(RealUser(getpid()), getuid());
  EXPECT_FALSE(RealUser(0x3fffff));
}

TEST(Process, IsInTheUserNamespacesThatItsOwnIsBelow) {
  const std::uint64_t own = NamespaceInode(getpid(), "user");
  EXPECT_TRUE(IsInUserNamespace(getpid(), own));
  EXPECT_FALSE(IsInUserNamespace(getpid(), 1));
  EXPECT_FALSE(IsInUserNamespace(0x3fffff, own));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::uint64_t outer = 0;
    const std::string user = "0 " + std::to_string(geteuid()) + " 1";
    const std::string group = "0 " + std::to_string(getegid()) + " 1";
    if (unshare(CLONE_NEWUSER) == 0) outer = NamespaceInode(getpid(), "user");
    const auto put = [](const char* path, const std::string& text) {
      const Fd file(open(path, O_WRONLY | O_CLOEXEC));
      return write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    if (!put("/proc/self/setgroups", "deny") || !put("/proc/self/uid_map", user) ||
        !put("/proc/self/gid_map", group)) {
      outer = 0;
    }
    if (outer != 0 && unshare(CLONE_NEWUSER) != 0) outer = 0;
    if (write(ready[1], &outer, sizeof outer) != sizeof outer) _exit(1);
    for (;;) pause();
  }
  std::uint64_t outer = 0;
  ASSERT_EQ(read(ready[0], &outer, sizeof outer), static_cast<ssize_t>(sizeof outer));
  if (outer != 0) {
    EXPECT_NE(NamespaceInode(child, "user"), outer);
    EXPECT_TRUE(IsInUserNamespace(child, outer));
    EXPECT_TRUE(IsInUserNamespace(child, own));
    EXPECT_FALSE(IsInUserNamespace(getpid(), outer));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (outer == 0) GTEST_SKIP() << "no user namespace to be had";
}

TEST(Process, WhoseFirstThreadHasEndedIsSeenByAnother) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t first = getpid();
    std::thread([first, to = ready[1]] {
      while (ReadProcessStat(first)->state != 'Z') usleep(1000);
      if (write(to, "+", 1) != 1) _exit(1);
      for (;;) pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_NE(LivingThread(child), child);
  EXPECT_EQ(NamespaceInode(child, "mnt"), NamespaceInode(getpid(), "mnt"));
  EXPECT_EQ(NamespaceInode(child, "pid"), NamespaceInode(getpid(), "pid"));
  EXPECT_TRUE(Alive({child, ReadProcessStat(child)->identity.start_ticks}));
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  EXPECT_EQ(LivingThread(child), child) << "nothing of it lives";
  EXPECT_EQ(NamespaceInode(child, "mnt"), 0u);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(LivingThread(getpid()), getpid());
}

}  // namespace
}  // namespace tessera::base
