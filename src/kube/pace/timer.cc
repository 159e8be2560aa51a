#include "kube/pace/timer.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace tessera::kube {
namespace {

class SystemTimer final : public Timer {
 public:
  std::int64_t NowNs() override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  std::int64_t WallMicros() override {
    return std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
  }
  bool WaitUntil(std::int64_t until_ns, std::stop_token stop) override {
    std::mutex mutex;
    std::condition_variable_any woken;
    std::unique_lock lock(mutex);
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(until_ns)};
    woken.wait_until(lock, stop, until, [&] { return NowNs() >= until_ns; });
    return !stop.stop_requested();
  }
};

}  // namespace

Timer& RealTimer() {
  static SystemTimer timer;
  return timer;
}

}  // namespace tessera::kube
