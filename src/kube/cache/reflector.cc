#include "kube/cache/reflector.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "kube/text/uri.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kGraceNs = 30 * kNsPerSecond;  // that a server gets to end a watch
constexpr std::int64_t kShortWatchNs = kNsPerSecond;  // one that ended sooner, empty, is a fault
constexpr std::int64_t kRelistSoonNs = 10 * kNsPerSecond;  // a second list within it waits

constexpr int kMostFaults = 5;  // for one version, before another is asked for

// Versions are opaque by contract, but whole numbers that grow where they are numbers at all (from
// Kubernetes 1.35 on that is promised).
bool GoesBack(const std::string& from, const std::string& to) {
  const auto number = [](const std::string& text) {
    return !text.empty() && text.size() < 20 && text[0] != '0' &&
           text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!number(from) || !number(to)) return false;
  return to.size() != from.size() ? to.size() < from.size() : to < from;
}

}  // namespace

Reflector::Reflector(Transport& transport, ReflectorOptions options, ObjectReader reader,
                     Store& store, Timer& timer, Jitter jitter)
    : transport_(transport),
      options_(std::move(options)),
      reader_(std::move(reader)),
      store_(store),
      timer_(timer),
      jitter_(jitter),
      backoff_(options_.backoff, jitter) {}

void Reflector::Run(std::stop_token stop) {
  while (!stop.stop_requested()) Step(stop);
}

void Reflector::Step(std::stop_token stop) {
  if (wait_ns_ > 0 && !timer_.WaitFor(wait_ns_, stop)) return;
  wait_ns_ = 0;
  if (!version_.empty()) {
    Settle(Watch(false, stop), false);
    return;
  }
  const bool streams = options_.stream_lists && streams_work_ && !pages_next_;
  {
    std::lock_guard lock(mutex_);
    ++state_.lists;
  }
  Settle(streams ? Watch(true, stop) : ListPages(stop), true);
}

// From what happened to what is done next, and when.
void Reflector::Settle(const Outcome& outcome, bool was_list) {
  const std::int64_t now = timer_.NowNs();
  healthy_until_ns_ = std::min(healthy_until_ns_.load(), now + options_.stale_after_ns);
  if (outcome.no_streams) streams_work_ = false;
  // A streaming list that broke before its end may do so again and again: pages in between.
  pages_next_ = was_list && outcome.error && version_.empty() && !pages_next_ && !outcome.at_once;
  faults_ = outcome.fault ? faults_ + 1 : 0;
  if (outcome.error) {
    const bool list_again = outcome.list_again || faults_ >= kMostFaults;
    if (list_again) {
      version_.clear();
      faults_ = 0;
    }
    const bool too_soon = list_again && listed_ns_ && now - *listed_ns_ < kRelistSoonNs;
    if (!outcome.at_once || too_soon) {
      wait_ns_ = std::max(backoff_.NextNs(now), outcome.retry_after_ns);
    }
    if (list_again) listed_ns_ = now;
  }
  std::lock_guard lock(mutex_);
  state_.version = version_;
  state_.last_error = outcome.error ? outcome.error->message : "";
}

Reflector::Outcome Reflector::OfStatus(const ApiStatus& status, std::int64_t retry_after_ns) const {
  Outcome outcome{.error = ErrorOf(status),
                  .retry_after_ns = std::max(retry_after_ns, status.retry_after_ns),
                  .fault = status.http_code == 500};
  const Code code = outcome.error->code;
  if (code == Code::kOutOfRange || status.version_too_large) {
    outcome.list_again = outcome.at_once = true;
  } else {
    // Busy, or down: the version will still be good. Anything else may be about it.
    outcome.list_again = code != Code::kResourceExhausted && code != Code::kUnavailable &&
                         code != Code::kDeadlineExceeded && code != Code::kUnauthenticated;
  }
  return outcome;
}

void Reflector::Filled(std::vector<ObjectPtr> objects, const std::string& version) {
  store_.Replace(std::move(objects));
  version_ = version;
  Touch(options_.stale_after_ns);
  std::lock_guard lock(mutex_);
  state_.last_error.clear();
  state_.version = version;
  synced_ = true;
  changed_.notify_all();
}

Reflector::Outcome Reflector::ListPages(std::stop_token stop) {
  std::vector<ObjectPtr> objects;
  std::string next;
  do {
    Request request{.path = options_.path, .max_bytes = options_.max_page_bytes};
    if (!options_.label_selector.empty()) {
      AppendQuery(request.path, "labelSelector", options_.label_selector);
    }
    if (!options_.field_selector.empty()) {
      AppendQuery(request.path, "fieldSelector", options_.field_selector);
    }
    if (!whole_next_) AppendQuery(request.path, "limit", std::to_string(options_.page_size));
    if (!next.empty()) AppendQuery(request.path, "continue", next);
    Result<Response> response = transport_.Send(request, stop);
    if (!response) return {.error = response.error()};
    if (!response->ok()) {
      Outcome outcome = OfStatus(StatusOfAnswer(response->status, std::move(response->body)),
                                 response->retry_after_ns);
      // The pages were too slow for how long the server keeps a version: now all at once.
      if (outcome.error->code == Code::kOutOfRange) whole_next_ = true;
      return outcome;
    }
    Result<ObjectList> list = ReadList(response->body, reader_);
    if (!list) return {.error = list.error()};
    for (ObjectPtr& object : list->items) objects.push_back(std::move(object));
    if (objects.size() > options_.max_objects) {
      return {.error = Error{Code::kResourceExhausted,
                             "more than " + std::to_string(options_.max_objects) + " objects"}};
    }
    next = std::move(list->next);
    if (next.empty()) {
      whole_next_ = false;
      Filled(std::move(objects), list->resource_version);
    }
  } while (!next.empty());
  return {};
}

std::string Reflector::WatchPath(std::int64_t seconds, bool initial) const {
  std::string path = options_.path;
  AppendQuery(path, "watch", "1");
  AppendQuery(path, "allowWatchBookmarks", "true");
  AppendQuery(path, "timeoutSeconds", std::to_string(seconds));
  if (initial) {
    AppendQuery(path, "sendInitialEvents", "true");
    AppendQuery(path, "resourceVersionMatch", "NotOlderThan");
  } else {
    AppendQuery(path, "resourceVersion", version_);
  }
  if (!options_.label_selector.empty()) {
    AppendQuery(path, "labelSelector", options_.label_selector);
  }
  if (!options_.field_selector.empty()) {
    AppendQuery(path, "fieldSelector", options_.field_selector);
  }
  return path;
}

Status Reflector::Take(WatchEvent event) {
  const std::string& version = event.object->meta.resource_version;
  if (GoesBack(version_, version)) {
    return Fail(Code::kOutOfRange, "the version went back from " + version_ + " to " + version);
  }
  version_ = version;
  if (event.type == WatchEvent::Type::kDeleted) {
    store_.Remove(event.object);
  } else if (event.type != WatchEvent::Type::kBookmark) {
    if (store_.size() >= options_.max_objects && !store_.Get(KeyOf(event.object->meta))) {
      return Fail(Code::kResourceExhausted,
                  "more than " + std::to_string(options_.max_objects) + " objects");
    }
    store_.Put(std::move(event.object));
  }
  return {};
}

// The lines of one watch. `initial`: up to the bookmark that ends the list, events are gathered.
class Reflector::Stream {
 public:
  Stream(Reflector& owner, bool initial) : owner_(owner), gathering_(initial) {}

  // False: the watch is over.
  bool Line(std::string& line) {
    Result<WatchEvent> event = ReadWatchLine(line, owner_.reader_);
    if (!event) {
      outcome_ = {.error = Error{Code::kDataLoss, "watch: " + event.error().message},
                  .list_again = true};
      return false;
    }
    ++events_;
    if (event->type == WatchEvent::Type::kError) {
      outcome_ = owner_.OfStatus(event->status, -1);
      if (gathering_ && outcome_.error->code == Code::kInvalidArgument) {
        outcome_.no_streams = outcome_.at_once = true;
        outcome_.list_again = false;
      }
      return false;
    }
    const Status done = gathering_ ? Gather(std::move(*event)) : owner_.Take(std::move(*event));
    if (!done) outcome_ = {.error = done.error(), .list_again = true};
    return done.has_value();
  }

  bool gathering() const { return gathering_; }
  int events() const { return events_; }
  const Outcome& outcome() const { return outcome_; }

 private:
  Status Gather(WatchEvent event) {
    if (EndsInitialEvents(event)) {
      std::vector<ObjectPtr> objects;
      objects.reserve(gathered_.size());
      for (auto& [key, object] : gathered_) objects.push_back(std::move(object));
      gathered_.clear();
      gathering_ = false;
      owner_.Filled(std::move(objects), event.object->meta.resource_version);
      return {};
    }
    if (event.type == WatchEvent::Type::kBookmark) return {};
    const std::string key = KeyOf(event.object->meta);
    if (event.type == WatchEvent::Type::kDeleted) {
      gathered_.erase(key);
    } else {
      gathered_[key] = std::move(event.object);
    }
    if (gathered_.size() > owner_.options_.max_objects) {
      return Fail(Code::kResourceExhausted,
                  "more than " + std::to_string(owner_.options_.max_objects) + " objects");
    }
    return {};
  }

  Reflector& owner_;
  bool gathering_;
  std::unordered_map<std::string, ObjectPtr> gathered_;
  int events_ = 0;
  Outcome outcome_;
};

Reflector::Outcome Reflector::Watch(bool initial, std::stop_token stop) {
  {
    std::lock_guard lock(mutex_);
    ++state_.watches;
  }
  const std::int64_t begun = timer_.NowNs();
  const std::int64_t seconds =
      jitter_.Between(options_.shortest_watch_ns, options_.longest_watch_ns) / kNsPerSecond;
  Request request{
      .path = WatchPath(seconds, initial),
      .timeout_ns = 0,
      .idle_ns = options_.silence_ns > 0 ? options_.silence_ns : seconds * kNsPerSecond + kGraceNs,
      .max_bytes = options_.max_event_bytes};
  Stream stream(*this, initial);
  const auto touch = [&] {
    if (!stream.gathering()) Touch(request.idle_ns + options_.stale_after_ns);
  };
  const LineHandler handler{.opened = touch, .line = [&](std::string& line) {
                              const bool more = stream.Line(line);
                              touch();
                              return more;
                            }};
  Result<Response> response = transport_.Stream(request, handler, stop);
  if (stream.outcome().error) return stream.outcome();
  if (!response) {
    // Cut or silent: the version is as good as it was.
    return {.error = response.error()};
  }
  if (!response->ok()) {
    Outcome outcome = OfStatus(StatusOfAnswer(response->status, std::move(response->body)),
                               response->retry_after_ns);
    if (initial && outcome.error->code == Code::kInvalidArgument) {
      outcome.no_streams = outcome.at_once = true;
      outcome.list_again = false;
    }
    return outcome;
  }
  if (stream.gathering()) {
    return {.error = Error{Code::kDataLoss, "the list ended before its last event"}};
  }
  if (stream.events() == 0 && timer_.NowNs() - begun < kShortWatchNs) {
    return {.error = Error{Code::kUnavailable, "a watch that ended at once, without an event"}};
  }
  return {};
}

bool Reflector::Stale() const { return synced_ && timer_.NowNs() > healthy_until_ns_; }

ReflectorState Reflector::State() const {
  ReflectorState state;
  {
    std::lock_guard lock(mutex_);
    state = state_;
  }
  state.synced = Synced();
  state.stale = Stale();
  return state;
}

bool Reflector::WaitSynced(std::int64_t until_ns, std::stop_token stop) const {
  std::unique_lock lock(mutex_);
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(until_ns)};
  return changed_.wait_until(lock, stop, until, [&] { return synced_.load(); });
}

}  // namespace tessera::kube
