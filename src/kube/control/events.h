// Tells the cluster what we did, as Events (events.k8s.io/v1): `kubectl describe` shows them.
//
// Record never blocks and never fails: the same event again only counts up, and is written at most
// every `refresh_ns`; different ones are kept up to `most_series`, and sent at `per_second`. What
// is too much is dropped and counted. What the API server does not take is tried up to 12 times.
//
// Thread safety: Record and dropped from any thread; Step and Run from one. An event is the same
// when object, reason, action and type are; of the notes the last is kept.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>

#include "base/result.h"
#include "kube/objects/api.h"
#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"
#include "kube/pace/token_bucket.h"

namespace tessera::kube {

struct ObjectReference {
  std::string api_version, kind, space, name, uid;

  friend auto operator<=>(const ObjectReference&, const ObjectReference&) = default;
};

struct ClusterEvent {
  ObjectReference regarding;
  std::string reason;  // one word, UpperCamelCase: why
  std::string action;  // one word: what was done
  std::string note;    // for people; at most 1024 bytes are kept
  bool warning = false;
};

struct EventsOptions {
  std::string controller;  // example.com/name
  std::string instance;    // which of its replicas
  double per_second = 5;
  int burst = 25;
  std::size_t most_series = 1000;
  std::int64_t refresh_ns = 60'000'000'000;
  std::int64_t forget_ns = 360'000'000'000;  // after that long the same event is a new one
  int most_tries = 12;
  BackoffConfig backoff{.first_ns = 1'000'000'000, .most_ns = 60'000'000'000};
};

class EventRecorder {
 public:
  // `api` and `timer` must outlive the object.
  EventRecorder(Api& api, EventsOptions options, Timer& timer, Jitter jitter = {});

  void Record(ClusterEvent event);
  std::uint64_t dropped() const;

  // Sends what is due until the rate is used up; returns when to look again.
  std::int64_t Step(std::stop_token stop);
  // Until `stop`; what is left then is sent as far as the rate allows, in at most 2 s.
  void Run(std::stop_token stop);

 private:
  using Key = std::tuple<ObjectReference, std::string, std::string, bool>;
  struct Series {
    ClusterEvent event;
    std::string name;              // of the Event object; "" before it is made
    std::uint64_t generation = 0;  // changes when it begins again as another Event
    std::int64_t count = 0, sent = 0;
    std::int64_t first_micros = 0, last_micros = 0;
    std::int64_t last_ns = 0;  // when it was recorded
    std::int64_t due_ns = 0;   // not sent before
    int tries = 0;
  };
  struct Job {
    Key key;
    Series series;
    bool creates = false;
  };

  bool MakeRoom();
  static void Begin(Series& series, std::int64_t wall_micros);
  // The next that is due by `now`, and when the first of the others is.
  std::optional<Job> NextJob(std::int64_t now, std::int64_t& next_due);
  Result<std::string> Send(const Job& job, Api api, std::stop_token stop) const;
  void Settle(const Job& job, const Result<std::string>& sent);
  void Flush();

  Api& api_;
  const EventsOptions options_;
  Timer& timer_;
  TokenBucket bucket_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // guarded by mutex_, as the next
  Jitter jitter_;
  std::map<Key, Series> series_;
  std::uint64_t dropped_ = 0;
  bool news_ = false;
};

}  // namespace tessera::kube
