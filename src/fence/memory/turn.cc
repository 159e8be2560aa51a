#include "memory/turn.h"

#include "contract/slice_layout.h"
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

std::uint64_t ThisThread() { return reinterpret_cast<std::uint64_t>(__builtin_thread_pointer()); }

}  // namespace

void Turn::Wait(int card) {
  if (card < 0) return;
  ResetOnFork(Reset);
  std::uint64_t* turn = &g_turns[card];
  const std::uint64_t deadline = os::MonotonicNs() + kPatienceNs;
  for (;;) {
    std::uint64_t holder = 0;
    if (__atomic_compare_exchange_n(turn, &holder, ThisThread(), false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED) ||
        holder == ThisThread())
      break;
    if (os::MonotonicNs() >= deadline &&
        __atomic_compare_exchange_n(turn, &holder, ThisThread(), false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
      break;
    os::SleepNs(20'000);
  }
  place_ = turn;
}

void Turn::End() {
  std::uint64_t mine = ThisThread();
  // Another thread may have taken it over.
  __atomic_compare_exchange_n(place_, &mine, std::uint64_t{0}, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

}  // namespace tessera::fence
