// The lock of one shard: taken with one instruction, given back with stores, never held across a
// call into driver or kernel.
//
// Invariant: every wait is bounded. A holder that was stopped (a debugger, SIGSTOP to one thread)
// delays one of the others by kPatienceNs, and the rest hardly; then they do without, and say so by
// their return value. A lock that this thread has left by longjmp is its own again at once; in a
// signal handler that has interrupted its holder nobody waits for what cannot happen.
#pragma once

#include <cstdint>

#include "os/holder.h"
#include "os/os.h"

namespace tessera::fence {

class SpinLock {
 public:
  [[nodiscard]] bool Lock() {
    const std::uint64_t here = os::StackNow();
    if (TryLock(here)) return true;
    return LockSlow(here);
  }
  void Unlock() {
    Set(frame_, std::uint64_t{0});
    Set(given_up_, 0u);
    __atomic_store_n(&holder_, std::uint64_t{0}, __ATOMIC_RELEASE);
  }

 private:
  static constexpr std::uint64_t kPatienceNs = 500'000'000;
  template <typename T>
  static void Set(T& place, T value) {
    __atomic_store_n(&place, value, __ATOMIC_RELAXED);
  }
  bool TryLock(std::uint64_t here) {
    std::uint64_t nobody = 0;
    if (__atomic_load_n(&holder_, __ATOMIC_RELAXED) != 0 ||
        !__atomic_compare_exchange_n(&holder_, &nobody, os::ThisThread(), false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
      return false;
    Set(frame_, here);
    return true;
  }
  [[gnu::noinline]] bool LockSlow(std::uint64_t here) {
    if (__atomic_load_n(&holder_, __ATOMIC_RELAXED) == os::ThisThread()) {
      if (!os::WasLeft(__atomic_load_n(&frame_, __ATOMIC_RELAXED), here)) return false;
      Set(frame_, here);
      return true;
    }
    for (int spin = 0; spin < 200; ++spin) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (TryLock(here)) return true;
    }
    if (__atomic_load_n(&given_up_, __ATOMIC_RELAXED) != 0) return false;
    const std::uint64_t deadline = os::MonotonicNs() + kPatienceNs;
    do {
      os::SleepNs(20'000);
      if (TryLock(here)) return true;
    } while (os::MonotonicNs() < deadline);
    Set(given_up_, 1u);  // until it is given back
    return false;
  }

  std::uint64_t holder_ = 0;    // atomic; the thread, 0 = free
  std::uint64_t frame_ = 0;     // atomic; where the holder took it, 0 = not told yet
  std::uint32_t given_up_ = 0;  // atomic; a thread has waited for this holder in vain
};

}  // namespace tessera::fence
