// The lock of one shard: taken with one instruction, given back with a store, never held across a
// call into driver or kernel.
//
// Invariant: every wait is bounded. A holder that was stopped (a debugger, SIGSTOP to one thread)
// delays others by at most kPatienceNs each; then they do without, and say so by their return
// value.
#pragma once

#include <cstdint>

#include "os/os.h"

namespace tessera::fence {

class SpinLock {
 public:
  [[nodiscard]] bool Lock() {
    if (TryLock()) return true;
    return LockSlow();
  }
  void Unlock() { __atomic_store_n(&word_, 0u, __ATOMIC_RELEASE); }

 private:
  static constexpr std::uint64_t kPatienceNs = 500'000'000;
  bool TryLock() {
    return __atomic_load_n(&word_, __ATOMIC_RELAXED) == 0 &&
           __atomic_exchange_n(&word_, 1u, __ATOMIC_ACQUIRE) == 0;
  }
  [[gnu::noinline]] bool LockSlow() {
    for (int spin = 0; spin < 200; ++spin) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (TryLock()) return true;
    }
    const std::uint64_t deadline = os::MonotonicNs() + kPatienceNs;
    do {
      os::SleepNs(20'000);
      if (TryLock()) return true;
    } while (os::MonotonicNs() < deadline);
    return false;
  }
  std::uint32_t word_ = 0;
};

}  // namespace tessera::fence
