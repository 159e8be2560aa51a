#include "kube/control/events.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/plain_text.h"
#include "kube/objects/patch.h"
#include "kube/objects/path.h"
#include "kube/text/time.h"

namespace tessera::kube {
namespace {

// Bounds of the API server (pkg/apis/core/validation/events.go).
constexpr std::size_t kMaxNote = 1024;
constexpr std::size_t kMaxWord = 128;
constexpr std::size_t kMaxObjectName = 200;  // of 253, which the tail needs a part of

constexpr std::int64_t kFlushNs = 2 * kNsPerSecond;
constexpr std::int64_t kIdleNs = 60 * kNsPerSecond;  // between looks when nothing is to be sent

std::string SpaceOf(const ObjectReference& regarding) {
  return regarding.space.empty() ? "default" : regarding.space;
}

std::string TimeField(const char* name, std::int64_t micros) {
  return "\"" + std::string(name) + "\":\"" + FormatMicroTime(micros) + "\"";
}

std::string SeriesField(std::int64_t count, std::int64_t last_micros) {
  return "\"series\":{\"count\":" + std::to_string(count) + "," +
         TimeField("lastObservedTime", last_micros) + "}";
}

std::string Field(const char* name, const std::string& value) {
  return ",\"" + std::string(name) + "\":" + QuoteJson(value);
}

// Nothing will make the API server take it.
bool IsHopeless(Code code) {
  return code == Code::kInvalidArgument || code == Code::kPermissionDenied ||
         code == Code::kNotFound || code == Code::kFailedPrecondition;
}

}  // namespace

EventRecorder::EventRecorder(Api& api, EventsOptions options, Timer& timer, Jitter jitter)
    : api_(api),
      options_(std::move(options)),
      timer_(timer),
      bucket_(options_.per_second, options_.burst),
      jitter_(jitter) {}

void EventRecorder::Begin(Series& series, std::int64_t wall_micros) {
  series.name.clear();
  ++series.generation;
  series.count = series.sent = 0;
  series.first_micros = wall_micros;
  series.tries = 0;
}

// False: everything that is held is still to be sent.
bool EventRecorder::MakeRoom() {
  if (series_.size() < options_.most_series) return true;
  auto oldest = series_.end();
  for (auto at = series_.begin(); at != series_.end(); ++at) {
    if (at->second.count != at->second.sent) continue;
    if (oldest == series_.end() || at->second.last_ns < oldest->second.last_ns) oldest = at;
  }
  if (oldest == series_.end()) return false;
  series_.erase(oldest);
  return true;
}

void EventRecorder::Record(ClusterEvent event) {
  event.note = base::OneLine(event.note, kMaxNote);
  event.reason.resize(std::min(event.reason.size(), kMaxWord));
  event.action.resize(std::min(event.action.size(), kMaxWord));
  const std::int64_t now = timer_.NowNs(), wall = timer_.WallMicros();
  std::lock_guard lock(mutex_);
  Key key{event.regarding, event.reason, event.action, event.warning};
  auto at = series_.find(key);
  if (at == series_.end()) {
    if (!MakeRoom()) {
      ++dropped_;
      return;
    }
    at = series_.emplace(std::move(key), Series{.event = event, .due_ns = now}).first;
    Begin(at->second, wall);
  }
  Series& series = at->second;
  // The note of an Event cannot be changed: another note is another Event, no sooner than a
  // refresh.
  const bool is_new = now - series.last_ns > options_.forget_ns || series.event.note != event.note;
  if (is_new && !series.name.empty()) Begin(series, wall);
  series.event = std::move(event);
  ++series.count;
  series.last_micros = wall;
  series.last_ns = now;
  news_ = true;
  changed_.notify_all();
}

std::uint64_t EventRecorder::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

std::optional<EventRecorder::Job> EventRecorder::NextJob(std::int64_t now, std::int64_t& next_due) {
  std::lock_guard lock(mutex_);
  news_ = false;
  next_due = now + kIdleNs;
  auto first = series_.end();
  for (auto at = series_.begin(); at != series_.end(); ++at) {
    const Series& series = at->second;
    if (series.count == series.sent) continue;
    next_due = std::min(next_due, series.due_ns);
    if (first == series_.end() || series.due_ns < first->second.due_ns) first = at;
  }
  if (first == series_.end() || first->second.due_ns > now) return std::nullopt;
  Job job{first->first, first->second, first->second.name.empty()};
  if (job.creates) {
    std::array<char, 40> tail{};
    std::snprintf(tail.data(), tail.size(), ".%llx%08llx",
                  static_cast<unsigned long long>(timer_.WallMicros()),
                  static_cast<unsigned long long>(jitter_.Between(0, std::int64_t{1} << 32)));
    job.series.name = job.series.event.regarding.name.substr(0, kMaxObjectName) + tail.data();
  }
  return job;
}

Result<std::string> EventRecorder::Send(const Job& job, Api api, std::stop_token stop) const {
  const Series& series = job.series;
  const ClusterEvent& event = series.event;
  const std::string space = SpaceOf(event.regarding);
  if (!job.creates) {
    const Result<std::string> path = ObjectPath(kEvents, space, series.name);
    if (!path) return Fail(path.error());
    return api.Patch(*path, kMergePatchType,
                     "{" + SeriesField(series.count, series.last_micros) + "}", stop);
  }
  const Result<std::string> path = CollectionPath(kEvents, space);
  if (!path) return Fail(path.error());
  std::string body = R"({"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":)" +
                     QuoteJson(series.name) + "}," + TimeField("eventTime", series.first_micros);
  if (series.count > 1) body += "," + SeriesField(series.count, series.last_micros);
  body += Field("reportingController", options_.controller);
  body += Field("reportingInstance", options_.instance.substr(0, kMaxWord));
  body += Field("reason", event.reason) + Field("action", event.action);
  body += Field("note", event.note) + Field("type", event.warning ? "Warning" : "Normal");
  const ObjectReference& regarding = event.regarding;
  body += ",\"regarding\":{\"kind\":" + QuoteJson(regarding.kind);
  body += Field("apiVersion", regarding.api_version) + Field("name", regarding.name);
  if (!regarding.space.empty()) body += Field("namespace", regarding.space);
  if (!regarding.uid.empty()) body += Field("uid", regarding.uid);
  return api.Create(*path, body + "}}", stop);
}

void EventRecorder::Settle(const Job& job, const Result<std::string>& sent) {
  std::lock_guard lock(mutex_);
  const auto at = series_.find(job.key);
  if (at == series_.end() || at->second.generation != job.series.generation) return;
  Series& series = at->second;
  const std::int64_t now = timer_.NowNs();
  if (sent) {
    series.name = job.series.name;
    series.sent = job.series.count;
    series.tries = 0;
    series.due_ns = now + options_.refresh_ns;
    return;
  }
  const Code code = sent.error().code;
  ++series.tries;
  const bool is_gone = !job.creates && code == Code::kNotFound;  // Events live an hour
  if (is_gone) series.name.clear();
  if (series.tries >= options_.most_tries || (IsHopeless(code) && !is_gone)) {
    ++dropped_;
    series.sent = series.count;
    series.tries = 0;
    series.due_ns = now + options_.refresh_ns;
    return;
  }
  if (is_gone || code == Code::kAlreadyExists) return;  // at once, under another name
  std::int64_t step = options_.backoff.first_ns;
  for (int i = 1; i < series.tries && step < options_.backoff.most_ns; ++i) step *= 2;
  step = std::min(step, options_.backoff.most_ns);
  series.due_ns = now + jitter_.Between(step / 2, step);
}

std::int64_t EventRecorder::Step(std::stop_token stop) {
  std::int64_t next_due = 0;
  while (!stop.stop_requested()) {
    const std::int64_t now = timer_.NowNs();
    const std::optional<Job> job = NextJob(now, next_due);
    if (!job) return next_due;
    if (!bucket_.Take(now, now)) {
      return now + static_cast<std::int64_t>(1e9 / options_.per_second);
    }
    Settle(*job, Send(*job, api_, stop));
  }
  return next_due;
}

void EventRecorder::Flush() {
  const std::int64_t end = timer_.NowNs() + kFlushNs;
  std::int64_t next_due = 0;
  for (std::int64_t now = timer_.NowNs(); now < end; now = timer_.NowNs()) {
    // What waits for its refresh or another try is due now.
    const std::optional<Job> job = NextJob(INT64_MAX - kIdleNs, next_due);
    if (!job || job->series.tries > 0 || !bucket_.Take(now, now)) return;
    Settle(*job, Send(*job, api_.Within(end - now), {}));
  }
}

void EventRecorder::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const std::int64_t until = Step(stop);
    const std::int64_t now = timer_.NowNs();
    std::unique_lock lock(mutex_);
    changed_.wait_until(
        lock, stop,
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(std::max(until, now))),
        [this] { return news_; });
  }
  Flush();
}

}  // namespace tessera::kube
