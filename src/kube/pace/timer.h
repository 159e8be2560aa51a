// The seam for waits: a time that can be waited for, and a wait that ends early.
//
// Thread safety: RealTimer from any thread.
// Units: nanoseconds of CLOCK_MONOTONIC; microseconds since 1970 for the wall clock, which may jump
// and is only ever written into objects, never compared with.
#pragma once

#include <cstdint>
#include <stop_token>
#include <utility>

namespace tessera::kube {

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::int64_t kNsPerMs = 1'000'000;

class Timer {
 public:
  virtual ~Timer() = default;
  virtual std::int64_t NowNs() = 0;
  virtual std::int64_t WallMicros() = 0;
  // Returns at `until_ns`, or sooner when `stop` is asked for: then false.
  virtual bool WaitUntil(std::int64_t until_ns, std::stop_token stop) = 0;

  bool WaitFor(std::int64_t duration_ns, std::stop_token stop) {
    return WaitUntil(NowNs() + duration_ns, std::move(stop));
  }
};

Timer& RealTimer();

}  // namespace tessera::kube
