// A client-side rate limit: so many requests a second, and a burst after a quiet time.
//
// Thread safety: all methods from any thread. First come, first served.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace tessera::kube {

class TokenBucket {
 public:
  // per_second > 0; 0: no limit. burst >= 1. The bucket starts full.
  TokenBucket(double per_second, int burst);

  // Takes one token and returns the time at which it may be used (now_ns or later). Nothing is
  // taken when that would be after `latest_ns`.
  std::optional<std::int64_t> Take(std::int64_t now_ns, std::int64_t latest_ns);

 private:
  std::mutex mutex_;
  const double interval_ns_;  // between two tokens
  const double full_ns_;      // what a full bucket is worth in time
  double spent_until_ns_ =
      0;  // guarded by mutex_: when the bucket is as full as it was at the start
};

}  // namespace tessera::kube
