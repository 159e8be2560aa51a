#include "kube/pace/token_bucket.h"

#include <algorithm>

namespace tessera::kube {

TokenBucket::TokenBucket(double per_second, int burst)
    : interval_ns_(per_second > 0 ? 1e9 / per_second : 0),
      full_ns_(interval_ns_ * std::max(burst, 1)) {}

std::optional<std::int64_t> TokenBucket::Take(std::int64_t now_ns, std::int64_t latest_ns) {
  std::lock_guard lock(mutex_);
  const auto now = static_cast<double>(now_ns);
  const double after = std::max(spent_until_ns_, now) + interval_ns_;
  const std::int64_t at = std::max(now_ns, static_cast<std::int64_t>(after - full_ns_));
  if (at > latest_ns) return std::nullopt;
  spent_until_ns_ = after;
  return at;
}

}  // namespace tessera::kube
