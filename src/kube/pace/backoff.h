// How long to wait before asking again: doubling, with jitter, forgotten after a quiet time.
//
// Thread safety: one thread, or the owner's lock.
#pragma once

#include <cstdint>

namespace tessera::kube {

// Numbers from 0 to 1 that two processes do not share. Not for secrets.
class Jitter {
 public:
  Jitter();  // seeded by the system
  explicit Jitter(std::uint64_t seed) : state_(seed) {}
  double Next();
  // Between low and high, evenly.
  std::int64_t Between(std::int64_t low, std::int64_t high);

 private:
  std::uint64_t state_;
};

// The defaults are client-go's for lists and watches (tools/cache/reflector.go).
struct BackoffConfig {
  std::int64_t first_ns = 800'000'000;
  std::int64_t most_ns = 30'000'000'000;
  std::int64_t reset_after_ns = 120'000'000'000;  // no failure for that long: start again
};

class Backoff {
 public:
  Backoff(BackoffConfig config, Jitter jitter) : config_(config), jitter_(jitter) {}

  // After one more failure at `now_ns`: between half of the step and the whole of it, so that
  // clients that failed together do not come back together, and none comes back at once.
  std::int64_t NextNs(std::int64_t now_ns);
  void Reset() { step_ns_ = 0; }

 private:
  BackoffConfig config_;
  Jitter jitter_;
  std::int64_t step_ns_ = 0;
  std::int64_t last_ns_ = 0;
};

}  // namespace tessera::kube
