// Which calls that change what this process holds are under way at this moment.
//
// Between the driver's part of such a call and the ledger's, the two differ. Who compares them must
// know that nothing was under way all the time that it looked:
//
//   const UnderwaySum before = UnderwayNow();
//   ... read the ledger, ask the driver ...
//   const bool exact = before.calls == 0 && UnderwayNow() == before;
//
// Thread safety: every function from any thread. Two atomic additions a call, on a cache line that
// threads seldom share.
#pragma once

#include <cstdint>

namespace tessera::fence {

namespace detail {
inline constexpr int kUnderwayLines = 16;
struct alignas(64) UnderwayLine {
  std::uint64_t word;  // atomic; calls begun << 16 | calls under way
};
extern UnderwayLine g_underway[kUnderwayLines];

inline UnderwayLine& OwnUnderwayLine() {
  const auto thread = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  return g_underway[(thread * 0x9e3779b97f4a7c15u) >> 60];
}
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
    const std::uint64_t word = __atomic_load_n(&line.word, __ATOMIC_SEQ_CST);
    sum.calls += word & 0xffff;
    sum.begun += word >> 16;
  }
  return sum;
}

// For the length of a call, from before the driver is asked until the books are right.
class Underway {
 public:
  Underway() : line_(&detail::OwnUnderwayLine()) {
    __atomic_fetch_add(&line_->word, (std::uint64_t{1} << 16) + 1, __ATOMIC_SEQ_CST);
  }
  ~Underway() { End(); }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;
  void End() {
    if (line_ != nullptr) __atomic_fetch_sub(&line_->word, std::uint64_t{1}, __ATOMIC_SEQ_CST);
    line_ = nullptr;
  }

 private:
  detail::UnderwayLine* line_;
};

// In a forked child no other thread is in a call.
void ForgetUnderway();

}  // namespace tessera::fence
