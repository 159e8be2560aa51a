// The seam for time: real code takes a Clock&, tests give a FakeClock.
//
// Thread safety: RealClock from any thread; FakeClock from one.
// Units: nanoseconds of CLOCK_MONOTONIC; seconds since 1970 for WallSeconds.
#pragma once

#include <cstdint>

namespace tessera::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t NowNs() = 0;
  virtual std::int64_t WallSeconds() = 0;
  virtual void SleepNs(std::int64_t duration_ns) = 0;
};

Clock& RealClock();

class FakeClock final : public Clock {
 public:
  std::int64_t NowNs() override { return now_ns_; }
  std::int64_t WallSeconds() override { return now_ns_ / 1'000'000'000; }
  void SleepNs(std::int64_t duration_ns) override { now_ns_ += duration_ns; }

 private:
  std::int64_t now_ns_ = 1'000'000'000;
};

}  // namespace tessera::base
