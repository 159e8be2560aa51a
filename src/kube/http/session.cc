#include "kube/http/session.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "kube/pace/token_bucket.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Whether the same request may be sent again after this outcome.
bool MayRepeat(const Request& request, const Result<Response>& outcome) {
  const bool reads = request.method == "GET";
  if (!outcome) {
    return outcome.error().code == Code::kUnavailable ||
           (reads && outcome.error().code == Code::kDataLoss);
  }
  if (outcome->status == 429) return true;
  return outcome->status >= 500 && (reads || outcome->retry_after_ns >= 0);
}

class Session final : public Transport {
 public:
  Session(std::unique_ptr<Transport> wire, std::unique_ptr<Credentials> credentials,
          const SessionOptions& options, Timer& timer)
      : wire_(std::move(wire)),
        credentials_(std::move(credentials)),
        options_(options),
        bucket_(options.requests_per_second, options.burst),
        timer_(timer) {}

  Result<Response> Send(const Request& request, std::stop_token stop) override {
    const std::int64_t deadline = DeadlineOf(request);
    Backoff backoff(options_.backoff, Jitter());
    for (int tries = 1;; ++tries) {
      Result<Response> outcome = Attempt(request, deadline, stop, [&](const Request& filled) {
        return wire_->Send(filled, stop);
      });
      if (!request.retry || tries >= options_.most_tries || !MayRepeat(request, outcome)) {
        return outcome;
      }
      const std::int64_t now = timer_.NowNs();
      const std::int64_t own = backoff.NextNs(now);
      const std::int64_t asked = outcome ? outcome->retry_after_ns : -1;
      // Retry-After: 0 is an invitation to hammer; the back-off stays below it.
      const std::int64_t until = now + (asked > 0 ? asked : own);
      if (until >= deadline) return outcome;
      if (!timer_.WaitUntil(until, stop)) return Fail(Code::kCancelled, "given up");
    }
  }

  Result<Response> Stream(const Request& request, const LineHandler& handler,
                          std::stop_token stop) override {
    return Attempt(request, DeadlineOf(request), stop,
                   [&](const Request& filled) { return wire_->Stream(filled, handler, stop); });
  }

 private:
  using Sender = std::function<Result<Response>(const Request&)>;

  std::int64_t DeadlineOf(const Request& request) {
    return request.timeout_ns > 0 ? timer_.NowNs() + request.timeout_ns : kNever;
  }

  // One try, or two when the credentials were refused.
  Result<Response> Attempt(const Request& request, std::int64_t deadline, std::stop_token stop,
                           const Sender& send) {
    Result<Response> outcome = Once(request, deadline, stop, send);
    if (!outcome || outcome->status != 401) return outcome;
    return Once(request, deadline, stop, send);
  }

  Result<Response> Once(const Request& request, std::int64_t deadline, std::stop_token stop,
                        const Sender& send) {
    const std::optional<std::int64_t> turn = bucket_.Take(timer_.NowNs(), deadline);
    if (!turn) {
      return Fail(Code::kDeadlineExceeded, "too many requests of ours are waiting for their turn");
    }
    if (!timer_.WaitUntil(*turn, stop)) return Fail(Code::kCancelled, "given up");
    Result<Identity> identity = credentials_->Get(stop);
    if (!identity) return Fail(identity.error());
    Request filled = request;
    filled.identity = std::move(*identity);
    if (deadline != kNever) {
      filled.timeout_ns = deadline - timer_.NowNs();
      if (filled.timeout_ns <= 0) return Fail(Code::kDeadlineExceeded, "no time left to send it");
    }
    Result<Response> outcome = send(filled);
    if (outcome && outcome->status == 401) credentials_->Refused(filled.identity);
    return outcome;
  }

  const std::unique_ptr<Transport> wire_;
  const std::unique_ptr<Credentials> credentials_;
  const SessionOptions options_;
  TokenBucket bucket_;
  Timer& timer_;
};

}  // namespace

std::unique_ptr<Transport> MakeSession(std::unique_ptr<Transport> wire,
                                       std::unique_ptr<Credentials> credentials,
                                       const SessionOptions& options, Timer& timer) {
  return std::make_unique<Session>(std::move(wire), std::move(credentials), options, timer);
}

}  // namespace tessera::kube
