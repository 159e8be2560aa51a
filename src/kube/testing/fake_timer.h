// A timer whose waits take no time: whoever waits moves it on.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>

#include "kube/pace/timer.h"

namespace tessera::kube::testing {

class FakeTimer final : public Timer {
 public:
  std::int64_t NowNs() override { return now_ns_; }
  std::int64_t WallMicros() override { return now_ns_ / 1000 + wall_step_micros_; }
  bool WaitUntil(std::int64_t until_ns, std::stop_token stop) override {
    if (stop.stop_requested()) return false;
    if (until_ns > now_ns_) now_ns_ = until_ns;
    if (on_wait) on_wait();
    return !stop.stop_requested();
  }
  void Advance(std::int64_t duration_ns) { now_ns_ += duration_ns; }
  void StepWall(std::int64_t micros) { wall_step_micros_ += micros; }

  std::function<void()> on_wait;  // called in each wait, at its end; set before other threads start

 private:
  std::atomic<std::int64_t> now_ns_{1'000'000'000};
  std::atomic<std::int64_t> wall_step_micros_{1'796'000'000'000'000};  // 2026-11-30
};

}  // namespace tessera::kube::testing
