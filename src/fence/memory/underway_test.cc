#include "memory/underway.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::fence {
namespace {

TEST(Underway, CountsACallFromItsBeginningToItsEnd) {
  const UnderwaySum before = UnderwayNow();
  {
    Underway call;
    EXPECT_EQ(UnderwayNow().calls, before.calls + 1);
    const Underway inner(Underway::Ordered::kByNextAtomic);
    EXPECT_EQ(UnderwayNow().calls, before.calls + 2);
    call.End();
    call.End();
    EXPECT_EQ(UnderwayNow().calls, before.calls + 1);
  }
  EXPECT_EQ(UnderwayNow().calls, before.calls);
  EXPECT_EQ(UnderwayNow().begun, before.begun + 2);
}

// More threads than lines: some own theirs, the others share.
TEST(Underway, LosesNoCallOfManyThreads) {
  constexpr int kThreads = 48;
  constexpr int kCalls = 100000;
  const UnderwaySum before = UnderwayNow();
  std::atomic<int> inside = 0, done = 0;
  std::atomic<bool> go_on = false;
  std::vector<std::thread> threads;
  for (int n = 0; n < kThreads; ++n) {
    threads.emplace_back([&] {
      {
        const Underway held;
        ++inside;
        while (!go_on) std::this_thread::yield();
      }
      ++done;
      while (done < kThreads + 1) std::this_thread::yield();
      for (int i = 0; i < kCalls; ++i) const Underway call;
    });
  }
  while (inside < kThreads) std::this_thread::yield();
  EXPECT_EQ(UnderwayNow().calls, before.calls + kThreads);
  go_on = true;
  while (done < kThreads) std::this_thread::yield();
  EXPECT_EQ(UnderwayNow().calls, before.calls);
  ++done;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(UnderwayNow().calls, before.calls);
  EXPECT_EQ(UnderwayNow().begun, before.begun + std::uint64_t{kThreads} * (kCalls + 1));
}

TEST(Underway, AChildForgetsItsParentsCalls) {
  const Underway call;
  EXPECT_NE(UnderwayNow().calls, 0u);
  const pid_t child = ::fork();
  if (child == 0) {
    ForgetUnderway();
    const bool none = UnderwayNow().calls == 0;
    Underway own;
    const bool one = UnderwayNow().calls == 1;
    own.End();
    ::_exit(none && one && UnderwayNow().calls == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tessera::fence
