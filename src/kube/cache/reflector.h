// Keeps a store equal to a collection of the API: a list, then a watch from where the list stood,
// taken up again at the last version that was seen, and a new list only when that version is gone.
//
// * A list is a stream (sendInitialEvents) where the server has that, else pages of `page_size` at
//   a consistent version: neither needs the whole list in memory twice.
// * A watch ends by itself after 5 to 10 minutes and goes on at once. One that says nothing for
//   longer than that is given up: bookmarks move the version of a quiet collection.
// * 410 or a version that the server has not yet: a new list. 429, 5xx, a connection that breaks:
//   again from the same version, after Retry-After or a back-off. What cannot be read: a new list,
//   and no sync before it can be: a cache that silently misses an object is worse than none.
// * Versions that go back (a store that was restored from a backup would leave out all changes up
//   to ours), and a version for which the server fails again and again: a new list.
//
// Thread safety: Run and Step from one thread; the rest from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/cache/store.h"
#include "kube/http/transport.h"
#include "kube/objects/list.h"
#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"

namespace tessera::kube {

struct ReflectorOptions {
  std::string path;  // of the collection: CollectionPath
  std::string label_selector, field_selector;
  bool stream_lists = true;
  int page_size = 500;
  std::int64_t shortest_watch_ns = 300'000'000'000;  // each lasts between the two: those of many
  std::int64_t longest_watch_ns = 600'000'000'000;   // clients do not end together
  std::int64_t silence_ns = 0;  // most time without a byte; 0: the watch's own and 30 s
  std::int64_t stale_after_ns = 60'000'000'000;
  std::size_t max_page_bytes = 64u << 20;
  std::size_t max_event_bytes = 16u << 20;
  std::size_t max_objects = 1'000'000;
  BackoffConfig backoff;
};

struct ReflectorState {
  bool synced = false;
  bool stale = false;
  std::uint64_t lists = 0, watches = 0;  // that were begun
  std::string version;                   // where the watch goes on
  std::string last_error;                // "" since the last success
};

class Reflector {
 public:
  // All references must outlive the object.
  Reflector(Transport& transport, ReflectorOptions options, ObjectReader reader, Store& store,
            Timer& timer, Jitter jitter = {});

  void Run(std::stop_token stop);
  // The wait that is due, then one list or one watch to its end.
  void Step(std::stop_token stop);

  // The first list is in the store, and the handlers have seen it. Stays true.
  bool Synced() const { return synced_; }
  // Synced once, and since then out of touch for stale_after_ns: no open watch, no list. An open
  // watch counts as touch until its time of silence is over.
  bool Stale() const;
  ReflectorState State() const;
  // False: not before `until_ns` of the real clock, or stopped.
  bool WaitSynced(std::int64_t until_ns, std::stop_token stop) const;

 private:
  // What came of a list or a watch.
  struct Outcome {
    std::optional<Error> error;
    std::int64_t retry_after_ns = -1;
    bool list_again = false;  // the version is of no use
    bool at_once = false;     // no back-off
    bool no_streams = false;  // the server has no streaming lists
    bool fault = false;       // the server's own (500)
  };
  class Stream;

  Outcome ListPages(std::stop_token stop);
  Outcome Watch(bool initial, std::stop_token stop);
  Outcome OfStatus(const ApiStatus& status, std::int64_t retry_after_ns) const;
  Status Take(WatchEvent event);
  void Filled(std::vector<ObjectPtr> objects, const std::string& version);
  void Settle(const Outcome& outcome, bool was_list);
  void Touch(std::int64_t ns) { healthy_until_ns_ = timer_.NowNs() + ns; }
  std::string WatchPath(std::int64_t seconds, bool initial) const;

  Transport& transport_;
  const ReflectorOptions options_;
  const ObjectReader reader_;
  Store& store_;
  Timer& timer_;
  Jitter jitter_;
  Backoff backoff_;

  // Of the running thread.
  std::string version_;  // "": list next
  std::int64_t wait_ns_ = 0;
  std::optional<std::int64_t> listed_ns_;  // when a version was last thrown away
  int faults_ = 0;                         // in a row
  bool streams_work_ = true;
  bool pages_next_ = false;  // a streaming list broke: pages this time
  bool whole_next_ = false;  // pages expired under us: all in one answer

  std::atomic<bool> synced_{false};
  std::atomic<std::int64_t> healthy_until_ns_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  ReflectorState state_;  // guarded by mutex_; synced and stale are filled in by State
};

}  // namespace tessera::kube
