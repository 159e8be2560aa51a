// Leader election by a Lease: at most one of several replicas leads.
//
// Safe against clocks that differ: no time that another replica wrote is ever compared. A replica
// takes the lease over when it has seen no change of it for the whole of its duration by its own
// monotonic clock; the leader stops leading `renew_ns` after it last *asked* for a renewal that was
// granted, and renew_ns < lease_ns. IsLeader checks that itself, so that it is right even while the
// elector's thread hangs in a request.
//
// Thread safety: Step and Run from one thread, where on_change is called; the rest from any.
// Verbs that are needed on leases: get, create, patch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/control/lease_record.h"
#include "kube/objects/api.h"
#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"

namespace tessera::kube {

struct LeaderOptions {
  std::string space, name;
  std::string identity;  // of this replica, and of no other: a pod's name with a random tail
  std::int64_t lease_ns = 15'000'000'000;  // client-go's defaults
  std::int64_t renew_ns = 10'000'000'000;
  std::int64_t retry_ns = 2'000'000'000;
};

// Whole seconds for lease_ns; retry_ns * 1.2 < renew_ns < lease_ns; names as paths take them.
Status CheckLeaderOptions(const LeaderOptions& options);

class LeaderElector {
 public:
  // `options` must have passed the check. The references must outlive the object.
  LeaderElector(Api& api, LeaderOptions options, Timer& timer,
                std::function<void(bool is_leader)> on_change = {}, Jitter jitter = {});

  // Until `stop`; then gives the lease up, so that another leads within retry_ns.
  void Run(std::stop_token stop);
  // One attempt to get or keep the lease; returns the time until the next is due.
  std::int64_t Step(std::stop_token stop);
  void Release();

  bool IsLeader() const;
  // Grows with every change of leader as long as the Lease stands; for fencing what a former leader
  // may still send. 0 before we led.
  std::int64_t Term() const { return term_; }
  // "" when nothing is wrong.
  const std::string& last_error() const { return last_error_; }  // elector's thread only

 private:
  enum class Attempt { kHeld, kOthers, kFailed };
  Attempt Try(std::stop_token stop);
  Attempt Write(const Lease* current, std::stop_token stop);
  Attempt Failed(const Error& error);
  void Observe(const Lease& lease);
  void Become(bool leader);

  const Api api_;
  const LeaderOptions options_;
  Timer& timer_;
  const std::function<void(bool)> on_change_;
  Jitter jitter_;
  const std::string collection_, path_;

  std::optional<Lease> seen_;     // the last that was read or written
  std::int64_t seen_ns_ = 0;      // when its record was first seen, by our clock
  std::int64_t last_micros_ = 0;  // our last renewTime: each is later than the one before
  bool leads_ = false;            // what on_change was told
  std::string last_error_;

  std::atomic<std::int64_t> leads_until_ns_{0};
  std::atomic<std::int64_t> term_{0};
};

}  // namespace tessera::kube
