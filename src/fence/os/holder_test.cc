// A lock that its holder has left by longjmp out of a signal handler is given to the same thread at
// once; a handler that has merely interrupted the holder gets nothing, and waits for nothing.
#include "os/holder.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "memory/spin_lock.h"
#include "os/os.h"

namespace tessera::fence {
namespace {

std::function<void()>* g_in_handler = nullptr;
void Handle(int) { (*g_in_handler)(); }

// Runs `what` in a signal handler that interrupts the caller.
void InHandler(std::function<void()> what, bool on_alternate_stack) {
  static char room[1 << 16];
  stack_t stack{}, former{};
  stack.ss_sp = room;
  stack.ss_size = sizeof room;
  sigaltstack(&stack, &former);
  struct sigaction action{}, before{};
  action.sa_handler = Handle;
  action.sa_flags = SA_NODEFER | (on_alternate_stack ? SA_ONSTACK : 0);
  sigaction(SIGUSR1, &action, &before);
  g_in_handler = &what;
  raise(SIGUSR1);
  sigaction(SIGUSR1, &before, nullptr);
  if (former.ss_sp == nullptr) former.ss_flags = SS_DISABLE;
  sigaltstack(&former, nullptr);
}

sigjmp_buf g_back;

template <typename Lock>
[[gnu::noinline]] void TakeAndLeave(Lock& lock) {
  if (!lock()) std::abort();
  InHandler([] { siglongjmp(g_back, 1); }, false);
}

template <typename Lock>
[[gnu::noinline]] void LeaveOnce(Lock& lock) {
  if (sigsetjmp(g_back, 1) == 0) TakeAndLeave(lock);
}

// `lock` takes it or not, `unlock` gives it back.
template <typename Lock, typename Unlock>
void IsGivenBackAfterALongjmp(Lock lock, Unlock unlock) {
  for (int round = 0; round < 3; ++round) {
    LeaveOnce(lock);
    EXPECT_TRUE(lock()) << "left in round " << round;
    unlock();
    bool other = false;
    std::thread([&] {
      other = lock();
      if (other) unlock();
    }).join();
    EXPECT_TRUE(other) << "free for others as well";
  }
}

template <typename Lock, typename Unlock>
void IsNotTakenFromWhoIsInterrupted(Lock lock, Unlock unlock) {
  for (const bool alternate : {false, true}) {
    ASSERT_TRUE(lock());
    bool taken = true;
    InHandler([&] { taken = lock(); }, alternate);
    EXPECT_FALSE(taken) << (alternate ? "on an alternate stack" : "on the same stack");
    unlock();
    InHandler(
        [&] {
          taken = lock();
          unlock();
        },
        alternate);
    EXPECT_TRUE(taken);
  }
}

TEST(Holder, ASpinLockThatWasLeftIsItsThreadsAgain) {
  SpinLock lock;
  IsGivenBackAfterALongjmp([&] { return lock.Lock(); }, [&] { lock.Unlock(); });
}

TEST(Holder, ASpinLockStaysWithWhoIsInterrupted) {
  SpinLock lock;
  IsNotTakenFromWhoIsInterrupted([&] { return lock.Lock(); }, [&] { lock.Unlock(); });
}

TEST(Holder, ASpinLockOfAnotherThreadIsNotTakenAndNotWaitedForTwice) {
  SpinLock lock;
  ASSERT_TRUE(lock.Lock());
  int got = 0;
  std::thread([&] {
    // Each would wait half a second; only the first does.
    for (int i = 0; i < 200; ++i) got += lock.Lock() ? 1 : 0;
  }).join();
  EXPECT_EQ(got, 0);
  lock.Unlock();
  EXPECT_TRUE(lock.Lock());
}

TEST(Holder, AMutexThatWasLeftIsItsThreadsAgain) {
  os::SpinMutex mutex;
  IsGivenBackAfterALongjmp([&] { return mutex.LockFor(1'000'000'000); }, [&] { mutex.Unlock(); });
}

TEST(Holder, AMutexStaysWithWhoIsInterrupted) {
  os::SpinMutex mutex;
  IsNotTakenFromWhoIsInterrupted([&] { return mutex.LockFor(1'000'000'000); },
                                 [&] { mutex.Unlock(); });
}

}  // namespace
}  // namespace tessera::fence
