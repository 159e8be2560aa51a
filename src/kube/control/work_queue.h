// Keys that need work: each waits once however often it is added, none is worked on twice at once,
// and one that failed comes back after a back-off of its own.
//
//   while (auto key = queue.Take(stop)) {
//     const Status done = Reconcile(*key);
//     if (done) queue.Forget(*key); else queue.AddAfterFailure(*key);
//     queue.Done(*key);
//   }
//
// Thread safety: all methods from any thread; any number of workers.
// Invariants: a key is in at most one of waiting and delayed; a key that is worked on is in neither
// before Done. Bounded by the number of different keys.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"

namespace tessera::kube {

// client-go's 5 ms first would come back before a conflict is over.
struct WorkQueueOptions {
  BackoffConfig backoff{.first_ns = 20'000'000, .most_ns = 60'000'000'000};
};

class WorkQueue {
 public:
  explicit WorkQueue(Timer& timer, WorkQueueOptions options = {}, Jitter jitter = {})
      : timer_(timer), options_(options), jitter_(jitter) {}

  void Add(const std::string& key);
  // Not before that time; an earlier one that was asked for stands.
  void AddAfter(const std::string& key, std::int64_t delay_ns);
  // After the key's back-off, which doubles until Forget.
  void AddAfterFailure(const std::string& key);
  void Forget(const std::string& key);
  int Failures(const std::string& key) const;

  // The oldest key that is due, or nothing when none is.
  std::optional<std::string> TryTake();
  // Waits for one (by the real clock); nothing when `stop` is asked for, or when the queue was
  // closed and everything that waited has been taken.
  std::optional<std::string> Take(std::stop_token stop);
  // Ends the work on a key; when it was added meanwhile, it waits again.
  void Done(const std::string& key);

  // When the next delayed key is due; nothing when none is delayed.
  std::optional<std::int64_t> NextDueNs() const;
  // No key is taken in any more; what is delayed is dropped, what waits may still be taken.
  void Close();
  std::size_t waiting() const;

 private:
  void AddLocked(const std::string& key);
  void DelayLocked(const std::string& key, std::int64_t due_ns);
  void PromoteLocked();
  std::optional<std::string> TakeLocked();

  Timer& timer_;
  const WorkQueueOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // guarded by mutex_, all of these
  Jitter jitter_;
  bool closed_ = false;
  std::deque<std::string> waiting_;                         // in order
  std::unordered_set<std::string> queued_;                  // those in waiting_
  std::unordered_set<std::string> working_;                 // taken, not done
  std::unordered_set<std::string> again_;                   // worked on, and added meanwhile
  std::set<std::pair<std::int64_t, std::string>> delayed_;  // by time
  std::unordered_map<std::string, std::int64_t> due_;       // those in delayed_
  std::unordered_map<std::string, int> failures_;
};

}  // namespace tessera::kube
