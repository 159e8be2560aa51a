#include "kube/control/leader.h"

#include <algorithm>
#include <utility>

#include "base/plain_text.h"
#include "kube/objects/patch.h"
#include "kube/objects/path.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kReleasedSeconds = 1;
constexpr std::int64_t kMostSeconds = 3600;  // that another's lease is respected

}  // namespace

Status CheckLeaderOptions(const LeaderOptions& options) {
  if (const Result<std::string> path = ObjectPath(kLeases, options.space, options.name); !path) {
    return FailIn("lease", path.error());
  }
  if (options.identity.empty()) {
    return Fail(Code::kInvalidArgument, "identity '': each replica needs one of its own");
  }
  if (options.lease_ns % kNsPerSecond != 0 || options.lease_ns <= 0 || options.retry_ns <= 0 ||
      options.renew_ns >= options.lease_ns || options.retry_ns > (options.renew_ns - 1) * 5 / 6) {
    return Fail(Code::kInvalidArgument,
                "lease times: legal is retry * 1.2 < renew < lease, with lease in whole seconds");
  }
  return {};
}

LeaderElector::LeaderElector(Api& api, LeaderOptions options, Timer& timer,
                             std::function<void(bool)> on_change, Jitter jitter)
    : api_(api),
      options_(std::move(options)),
      timer_(timer),
      on_change_(std::move(on_change)),
      jitter_(jitter),
      collection_(CollectionPath(kLeases, options_.space).value_or("")),
      path_(ObjectPath(kLeases, options_.space, options_.name).value_or("")) {}

bool LeaderElector::IsLeader() const { return timer_.NowNs() < leads_until_ns_; }

void LeaderElector::Become(bool leader) {
  if (!leader) leads_until_ns_ = 0;
  if (leads_ == leader) return;
  leads_ = leader;
  if (on_change_) on_change_(leader);
}

void LeaderElector::Observe(const Lease& lease) {
  if (!seen_ || seen_->record != lease.record) seen_ns_ = timer_.NowNs();
  seen_ = lease;
}

LeaderElector::Attempt LeaderElector::Failed(const Error& error) {
  last_error_ = error.message;
  return Attempt::kFailed;
}

// current: nullptr to create it.
LeaderElector::Attempt LeaderElector::Write(const Lease* current, std::stop_token stop) {
  // The lease counts from before the request is sent: others count from after it was stored.
  const std::int64_t asked_ns = timer_.NowNs();
  const std::int64_t left = leads_ ? leads_until_ns_ - asked_ns : options_.renew_ns;
  if (left <= 0) return Failed({Code::kDeadlineExceeded, "the lease ran out"});
  last_micros_ = std::max(timer_.WallMicros(), last_micros_ + 1);
  LeaseRecord record{.holder = options_.identity,
                     .seconds = options_.lease_ns / kNsPerSecond,
                     .acquired_micros = last_micros_,
                     .renewed_micros = last_micros_};
  if (current) {
    const bool ours = current->record.holder == options_.identity;
    record.transitions = current->record.transitions + (ours ? 0 : 1);
    if (ours) record.acquired_micros = current->record.acquired_micros;
  }
  Api api = api_.Within(std::min(left, options_.renew_ns / 2));
  const std::string spec = ",\"spec\":" + LeaseSpec(record) + "}";
  const Result<std::string> written =
      current
          ? api.Patch(path_, kMergePatchType,
                      "{\"metadata\":{\"resourceVersion\":" + QuoteJson(current->resource_version) +
                          "}" + spec,
                      stop)
          : api.Create(collection_,
                       R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease",)"
                       R"("metadata":{"name":)" +
                           QuoteJson(options_.name) + "}" + spec,
                       stop);
  if (!written) return Failed(written.error());
  Result<Lease> lease = ReadLease(*written);
  if (!lease) return Failed(lease.error());
  Observe(*lease);
  // A server that stores another holder than the one it was given is none to trust.
  if (lease->record.holder != options_.identity) return Attempt::kOthers;
  term_ = record.transitions;
  leads_until_ns_ = asked_ns + options_.renew_ns;
  return IsLeader() ? Attempt::kHeld : Failed({Code::kDeadlineExceeded, "granted too late"});
}

LeaderElector::Attempt LeaderElector::Try(std::stop_token stop) {
  // The leader writes without reading first; when somebody else wrote, it reads.
  if (leads_ && seen_ && seen_->record.holder == options_.identity) {
    const Lease last = *seen_;
    const Attempt renewed = Write(&last, stop);
    if (renewed != Attempt::kFailed) return renewed;
    if (!IsLeader()) return renewed;
  }
  const std::int64_t left = leads_ ? leads_until_ns_ - timer_.NowNs() : options_.renew_ns;
  Api api = api_.Within(std::clamp<std::int64_t>(left, 1, options_.renew_ns / 2));
  const Result<std::string> text = api.Get(path_, stop);
  if (!text && text.error().code == Code::kNotFound) return Write(nullptr, stop);
  if (!text) return Failed(text.error());
  const Result<Lease> lease = ReadLease(*text);
  if (!lease) return Failed(lease.error());
  Observe(*lease);
  const LeaseRecord& record = lease->record;
  if (!record.holder.empty() && record.holder != options_.identity) {
    const std::int64_t seconds = std::clamp<std::int64_t>(record.seconds, 1, kMostSeconds);
    if (timer_.NowNs() < seen_ns_ + seconds * kNsPerSecond) return Attempt::kOthers;
  }
  return Write(&*lease, stop);
}

std::int64_t LeaderElector::Step(std::stop_token stop) {
  if (leads_ && !IsLeader()) Become(false);  // this thread was away for too long
  last_error_.clear();
  const Attempt attempt = Try(std::move(stop));
  if (attempt == Attempt::kHeld) {
    Become(true);
    return options_.retry_ns;
  }
  if (attempt == Attempt::kOthers || !IsLeader()) Become(false);
  if (!leads_) return jitter_.Between(options_.retry_ns, options_.retry_ns * 11 / 5);
  // Still ours for a while: not later than its end, so that whoever is told is told in time.
  return std::clamp<std::int64_t>(leads_until_ns_ - timer_.NowNs(), 0, options_.retry_ns);
}

void LeaderElector::Release() {
  if (!leads_ || !seen_) return Become(false);
  // What leads stops before the lease is given away.
  const Lease last = *seen_;
  Become(false);
  LeaseRecord record = last.record;
  record.holder.clear();
  record.seconds = kReleasedSeconds;
  record.renewed_micros = std::max(timer_.WallMicros(), last_micros_ + 1);
  Api api = api_.Within(options_.retry_ns);
  const Result<std::string> done =
      api.Patch(path_, kMergePatchType,
                "{\"metadata\":{\"resourceVersion\":" + QuoteJson(last.resource_version) +
                    "},\"spec\":" + LeaseSpec(record) + "}",
                {});
  if (!done) last_error_ = done.error().message;  // it runs out by itself
}

void LeaderElector::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const std::int64_t wait = Step(stop);
    if (!timer_.WaitFor(wait, stop)) break;
  }
  Release();
}

}  // namespace tessera::kube
