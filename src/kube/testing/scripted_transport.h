// A transport that answers from a list, one answer a request, and keeps what it was asked.
//
// Thread safety: one thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kube/http/transport.h"
#include "kube/testing/fake_timer.h"

namespace tessera::kube::testing {

struct Answer {
  Result<Response> response = Response{200, -1, ""};
  std::vector<std::string> lines;  // of a stream, before `response` ends it
  std::int64_t takes_ns = 0;       // how long it lasts; for a stream, after its lines
  bool silent = false;             // a stream that goes silent: ends by the caller's idle_ns
  std::function<void()> meanwhile;
};

inline Answer Status(int status, std::string body = "", std::int64_t retry_after_ns = -1) {
  return {.response = Response{status, retry_after_ns, std::move(body)}};
}
inline Answer Broken(Code code) { return {.response = Fail(code, "scripted")}; }
inline Answer Lines(std::vector<std::string> lines) { return {.lines = std::move(lines)}; }

class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(FakeTimer& timer) : timer_(timer) {}

  void Add(Answer answer) { answers_.push_back(std::move(answer)); }

  Result<Response> Send(const Request& request, std::stop_token stop) override {
    return Give(request, {}, std::move(stop));
  }
  Result<Response> Stream(const Request& request, const LineHandler& handler,
                          std::stop_token stop) override {
    return Give(request, handler, std::move(stop));
  }

  std::vector<Request> requests;
  std::vector<std::int64_t> times_ns;  // of the requests
  std::size_t left() const { return answers_.size(); }

 private:
  Result<Response> Give(const Request& request, const LineHandler& handler, std::stop_token stop) {
    requests.push_back(request);
    times_ns.push_back(timer_.NowNs());
    if (stop.stop_requested()) return Fail(Code::kCancelled, "given up");
    if (answers_.empty()) return Fail(Code::kInternal, "nothing scripted for " + request.path);
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    if (answer.meanwhile) answer.meanwhile();
    const bool opens = !answer.response || answer.response->ok();
    if (opens && handler.opened && (answer.response || !answer.lines.empty())) handler.opened();
    for (std::string& line : answer.lines) {
      if (!handler.line(line)) return answer.response;
    }
    timer_.Advance(answer.takes_ns);
    if (answer.silent) {
      timer_.Advance(request.idle_ns);
      return Fail(Code::kDeadlineExceeded, "scripted silence");
    }
    return answer.response;
  }

  FakeTimer& timer_;
  std::deque<Answer> answers_;
};

}  // namespace tessera::kube::testing
