// Which calls that change what this process holds are under way at this moment.
//
// Between the driver's part of such a call and the ledger's, the two differ. Who compares them must
// know that nothing was under way all the time that it looked:
//
//   const UnderwaySum before = UnderwayNow();
//   ... read the ledger, ask the driver ...
//   const bool exact = before.calls == 0 && UnderwayNow() == before;
//
// Thread safety: every function from any thread. A line belongs to the first thread that comes to
// it, which writes its word by plain stores; others that meet there share a second word, by two
// atomic additions a call.
#pragma once

#include <cstdint>

namespace tessera::fence {

namespace detail {
inline constexpr int kUnderwayLines = 16;
// A word: calls begun << 16 | calls under way.
struct alignas(64) UnderwayLine {
  std::uint64_t owner;   // atomic; the thread that alone writes `own`, 0 = none yet
  std::uint64_t own;     // atomic
  std::uint64_t shared;  // atomic
};
extern UnderwayLine g_underway[kUnderwayLines];
}  // namespace detail

struct UnderwaySum {
  std::uint64_t calls = 0;
  std::uint64_t begun = 0;
  bool operator==(const UnderwaySum& other) const {
    return calls == other.calls && begun == other.begun;
  }
};

inline UnderwaySum UnderwayNow() {
  UnderwaySum sum;
  for (const detail::UnderwayLine& line : detail::g_underway) {
    const std::uint64_t own = __atomic_load_n(&line.own, __ATOMIC_SEQ_CST);
    const std::uint64_t shared = __atomic_load_n(&line.shared, __ATOMIC_SEQ_CST);
    sum.calls += (own & 0xffff) + (shared & 0xffff);
    sum.begun += (own >> 16) + (shared >> 16);
  }
  return sum;
}

// For the length of a call, from before the driver is asked until the books are right.
class Underway {
 public:
  // What makes the beginning visible to all before the driver is asked.
  enum class Ordered {
    kHere,
    kByNextAtomic,  // the caller's next atomic read-modify-write, or Order() if it makes none
  };

  explicit Underway(Ordered ordered = Ordered::kHere) {
    const auto thread = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
    detail::UnderwayLine& line = detail::g_underway[(thread * 0x9e3779b97f4a7c15u) >> 60];
    std::uint64_t owner = __atomic_load_n(&line.owner, __ATOMIC_RELAXED);
    if (owner == 0 && __atomic_compare_exchange_n(&line.owner, &owner, thread, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      owner = thread;
    }
    if (owner != thread) [[unlikely]] {
      shared_ = &line.shared;
      __atomic_fetch_add(shared_, kBegin, __ATOMIC_SEQ_CST);
      return;
    }
    own_ = &line.own;
    __atomic_store_n(own_, __atomic_load_n(own_, __ATOMIC_RELAXED) + kBegin, __ATOMIC_RELEASE);
#if defined(__x86_64__)
    // Any instruction with a lock prefix orders this store before every later load and call.
    if (ordered == Ordered::kByNextAtomic) {
      asm volatile("" ::: "memory");
      return;
    }
#endif
    Order();
  }
  ~Underway() { End(); }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;
  void Order() {
    if (own_ != nullptr)
      __atomic_exchange_n(own_, __atomic_load_n(own_, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
  }
  void End() {
    if (own_ != nullptr) {
      // Nobody else writes it; what the call has put into the books is seen first.
      __atomic_store_n(own_, __atomic_load_n(own_, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
    } else if (shared_ != nullptr) {
      __atomic_fetch_sub(shared_, std::uint64_t{1}, __ATOMIC_SEQ_CST);
    }
    own_ = shared_ = nullptr;
  }

 private:
  static constexpr std::uint64_t kBegin = (std::uint64_t{1} << 16) + 1;
  std::uint64_t* own_ = nullptr;
  std::uint64_t* shared_ = nullptr;
};

// In a forked child no other thread is in a call.
void ForgetUnderway();

}  // namespace tessera::fence
