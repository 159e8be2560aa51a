#include "kube/pace/backoff.h"

#include <algorithm>
#include <random>

namespace tessera::kube {
namespace {

std::uint64_t SystemSeed() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

}  // namespace

Jitter::Jitter() : state_(SystemSeed()) {}

// SplitMix64 (Steele, Lea, Flood, 2014).
double Jitter::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

std::int64_t Jitter::Between(std::int64_t low, std::int64_t high) {
  if (high <= low) return low;
  return low + static_cast<std::int64_t>(Next() * static_cast<double>(high - low));
}

std::int64_t Backoff::NextNs(std::int64_t now_ns) {
  if (step_ns_ == 0 || now_ns - last_ns_ > config_.reset_after_ns) {
    step_ns_ = config_.first_ns;
  } else {
    step_ns_ = std::min(step_ns_ * 2, config_.most_ns);
  }
  last_ns_ = now_ns;
  return jitter_.Between(step_ns_ / 2, step_ns_);
}

}  // namespace tessera::kube
