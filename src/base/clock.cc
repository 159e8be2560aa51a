#include "base/clock.h"

#include <ctime>

namespace tessera::base {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

class SystemClock final : public Clock {
 public:
  std::int64_t NowNs() override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kNsPerSecond + now.tv_nsec;
  }
  std::int64_t WallSeconds() override { return time(nullptr); }
  void SleepNs(std::int64_t duration_ns) override {
    timespec left{duration_ns / kNsPerSecond, duration_ns % kNsPerSecond};
    while (nanosleep(&left, &left) != 0) {
    }
  }
};

}  // namespace

Clock& RealClock() {
  static SystemClock clock;
  return clock;
}

}  // namespace tessera::base
