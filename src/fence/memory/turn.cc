#include "memory/turn.h"

#include "contract/slice_layout.h"
#include "os/holder.h"
#include "os/os.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

// Longer than a small allocation takes in any driver.
constexpr std::uint64_t kPatienceNs = 100'000'000;
std::uint64_t g_turns[contract::kMaxCards];  // atomic; the thread whose turn it is, 0 = nobody's

void Reset() {
  for (std::uint64_t& turn : g_turns) turn = 0;
}

}  // namespace

void Turn::Wait(int card) {
  if (card < 0) return;
  ResetOnFork(Reset);
  Wait(&g_turns[card], kPatienceNs);
}

void Turn::Wait(std::uint64_t* place, std::uint64_t patience_ns) {
  const std::uint64_t me = os::ThisThread(), deadline = os::MonotonicNs() + patience_ns;
  for (;;) {
    std::uint64_t holder = 0;
    if (__atomic_compare_exchange_n(place, &holder, me, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED) ||
        holder == me)
      break;
    if (os::MonotonicNs() >= deadline &&
        __atomic_compare_exchange_n(place, &holder, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      break;
    os::SleepNs(20'000);
  }
  place_ = place;
}

void Turn::End() {
  std::uint64_t mine = os::ThisThread();
  // Another thread may have taken it over.
  __atomic_compare_exchange_n(place_, &mine, std::uint64_t{0}, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

}  // namespace tessera::fence
