// The parts of the OS layer that decide something: /proc/PID/stat, the environment swap, the
// bounded lock, the error line.
#include "os/os.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace tessera::fence::os {
namespace {

std::string Stat(const std::string& comm, const std::string& state) {
  return "4711 (" + comm + ") " + state +
         " 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 123456 1000 200 18446744073709551615 "
         "1 2 140722222222 0 0\n";
}

TEST(ParseProcessStat, ReadsTheFieldsOfAnOrdinaryProcess) {
  const ProcessStat stat = ParseProcessStat(Stat("bash", "S"));
  EXPECT_TRUE(stat.ok);
  EXPECT_EQ(stat.state, 'S');
  EXPECT_EQ(stat.threads, 9);
  EXPECT_EQ(stat.start_ticks, 123456u);
  EXPECT_EQ(stat.stack_start, 140722222222u);
  EXPECT_FALSE(stat.Dead());
}

TEST(ParseProcessStat, CommandsWithSpacesAndParenthesesChangeNothing) {
  for (const char* comm : {"a Zed", "x) Z 1 2 3", ")(", "a b c", "(((", ""}) {
    const ProcessStat stat = ParseProcessStat(Stat(comm, "R"));
    EXPECT_EQ(stat.state, 'R') << comm;
    EXPECT_EQ(stat.start_ticks, 123456u) << comm;
    EXPECT_FALSE(stat.Dead()) << comm;
  }
}

TEST(ParseProcessStat, RefusesWhatIsCutOff) {
  const std::string whole = Stat("bash", "S");
  EXPECT_FALSE(ParseProcessStat("").ok);
  EXPECT_FALSE(ParseProcessStat("4711 (bash").ok);
  EXPECT_FALSE(ParseProcessStat("4711 (bash)").ok);
  for (std::size_t length = 0; length < whole.find("123456"); ++length) {
    EXPECT_FALSE(ParseProcessStat(std::string_view(whole).substr(0, length)).ok) << length;
  }
}

TEST(ReadProcessStat, FindsItselfAndNoStranger) {
  EXPECT_TRUE(ReadProcessStat(getpid()).ok);
  EXPECT_FALSE(ReadProcessStat(0).ok);
  EXPECT_TRUE(ReadProcessStat(0x3fffff).Dead());
  EXPECT_NE(PidNamespace(), 0u);
}

TEST(EnvironmentSwap, ShowsTheNewValueAndPutsTheOldBack) {
  setenv("TESSERA_TEST_SWAP", "mine", 1);
  char** before = environ;
  char assignment[] = "TESSERA_TEST_SWAP=ours";
  {
    EnvironmentSwap swap("TESSERA_TEST_SWAP", assignment);
    ASSERT_TRUE(swap.active());
    EXPECT_STREQ(getenv("TESSERA_TEST_SWAP"), "ours");
    EXPECT_NE(getenv("PATH"), nullptr);
  }
  EXPECT_EQ(environ, before);
  EXPECT_STREQ(getenv("TESSERA_TEST_SWAP"), "mine");
}

TEST(EnvironmentSwap, AVariableThatWasUnsetIsUnsetAgain) {
  unsetenv("TESSERA_TEST_SWAP");
  char assignment[] = "TESSERA_TEST_SWAP=ours";
  {
    EnvironmentSwap swap("TESSERA_TEST_SWAP", assignment);
  }
  EXPECT_EQ(getenv("TESSERA_TEST_SWAP"), nullptr);
}

TEST(EnvironmentSwap, SurvivesSetenvMeanwhile) {
  char assignment[] = "TESSERA_TEST_SWAP=ours";
  setenv("TESSERA_TEST_SWAP", "mine", 1);
  {
    EnvironmentSwap swap("TESSERA_TEST_SWAP", assignment);
    setenv("TESSERA_TEST_OTHER", "1", 1);
  }
  EXPECT_STREQ(getenv("TESSERA_TEST_OTHER"), "1");
  EXPECT_STREQ(getenv("TESSERA_TEST_SWAP"), "mine");
  unsetenv("TESSERA_TEST_SWAP");
  {
    EnvironmentSwap swap("TESSERA_TEST_SWAP", assignment);
    setenv("TESSERA_TEST_THIRD", "1", 1);
  }
  EXPECT_STREQ(getenv("TESSERA_TEST_THIRD"), "1");
  EXPECT_EQ(getenv("TESSERA_TEST_SWAP"), nullptr);
}

TEST(SpinMutex, ExcludesAndGivesUpInTime) {
  SpinMutex mutex;
  ASSERT_TRUE(mutex.LockFor(1));
  std::thread([&] { EXPECT_FALSE(mutex.LockFor(1'000'000)); }).join();
  mutex.Unlock();
  ASSERT_TRUE(mutex.LockFor(1));
  mutex.Unlock();
  long sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        if (!mutex.LockFor(60'000'000'000)) std::abort();
        ++sum;
        mutex.Unlock();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 80'000);
}

TEST(Complain, WritesOneLineWhateverTheValueHolds) {
  testing::internal::CaptureStderr();
  Complain({"X is '", "a\nb", "', legal is 1"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: X is 'a?b', legal is 1\n");
}

std::atomic<int> forked = 0;

TEST(OnFork, RunsInTheChildOnly) {
  ASSERT_TRUE(OnFork([] { ++forked; }));
  const pid_t child = fork();
  if (child == 0) _exit(forked == 1 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(forked, 0);
}

TEST(Os, HowFarMemoryCanBeRead) {
  constexpr std::size_t kPage = 4096;
  auto* map = static_cast<char*>(
      mmap(nullptr, 200 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(map, MAP_FAILED);
  ASSERT_EQ(mprotect(map + 10 * kPage, kPage, PROT_NONE), 0);
  EXPECT_EQ(ReadableBytes(map + 100, 20), 20u);
  EXPECT_EQ(ReadableBytes(map + 100, 20 * kPage), 10 * kPage - 100);
  EXPECT_EQ(ReadableBytes(map + 10 * kPage + 5, 1), 0u);
  EXPECT_EQ(ReadableBytes(map + 11 * kPage + 1, 180 * kPage), 128 * kPage - 1) << "at once";
  EXPECT_EQ(ReadableBytes(map, 0), 0u);
  EXPECT_EQ(ReadableBytes(reinterpret_cast<void*>(8), 8), 0u);
  EXPECT_EQ(ReadableBytes(reinterpret_cast<void*>(~std::uintptr_t{0} - 3), 100), 0u);
  munmap(map, 200 * kPage);
}

}  // namespace
}  // namespace tessera::fence::os
