#include "kube/testing/fake_api.h"

#include <algorithm>

namespace tessera::kube::testing {
namespace {

constexpr int kLookEveryMs = 5;

std::string Bookmark(std::int64_t version, bool ends_list) {
  return R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":")" +
         std::to_string(version) + "\"" +
         (ends_list ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "") + "}}}\n";
}

std::string ErrorEvent(int code, const char* reason) {
  return R"({"type":"ERROR","object":{"kind":"Status","reason":")" + std::string(reason) +
         R"(","code":)" + std::to_string(code) + "}}\n";
}

const char* const kInvalid =
    R"({"kind":"Status","reason":"Invalid","message":"sendInitialEvents: Forbidden","code":422})";
const char* const kTooLarge =
    R"({"kind":"Status","reason":"Timeout","message":"Too large resource version","code":504})";

}  // namespace

void FakeApi::Next(Fault fault, bool watch) {
  std::lock_guard lock(mutex_);
  faults_.emplace_back(fault, watch);
}

std::size_t FakeApi::faults_left() {
  std::lock_guard lock(mutex_);
  return faults_.size();
}

void FakeApi::AcceptToken(std::string token) {
  std::lock_guard lock(mutex_);
  token_ = std::move(token);
}

std::optional<Fault> FakeApi::Take(bool watch) {
  std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(faults_, watch, &std::pair<Fault, bool>::second);
  if (at == faults_.end()) return std::nullopt;
  const Fault fault = at->first;
  faults_.erase(at);
  return fault;
}

void FakeApi::Serve(const HttpRequest& request, HttpAnswer& answer) {
  // Before anything else: a watch that began before EndWatches ends, one that began after it has
  // the faults that were asked for before it.
  const int ended = ended_;
  {
    std::lock_guard lock(mutex_);
    const auto given = request.headers.find("authorization");
    if (!token_.empty() &&
        (given == request.headers.end() || given->second != "Bearer " + token_)) {
      answer.Reply(401, R"({"kind":"Status","reason":"Unauthorized","code":401})");
      return;
    }
  }
  const Place place = PlaceOf(request.target);
  const bool watch = place.query.contains("watch");
  const std::optional<Fault> fault = Take(watch);
  if (fault == Fault::kTooMany) {
    answer.Reply(429, R"({"reason":"TooManyRequests","code":429})", {{"Retry-After", "1"}});
  } else if (fault == Fault::kUnavailable) {
    answer.Reply(503, "no endpoints");
  } else if (fault == Fault::kReset) {
    answer.Reset();
  } else if (watch) {
    Watch(place, answer, fault, ended);
  } else {
    if (request.method == "GET" && place.name.empty()) ++lists_;
    const auto type = request.headers.find("content-type");
    const Response response = model_.Handle(request.method, request.target, request.body,
                                            type == request.headers.end() ? "" : type->second);
    if (fault == Fault::kSlow) {
      answer.Begin(response.status);
      for (char c : response.body) answer.Write(std::string(1, c));
      answer.End();
    } else {
      answer.Reply(response.status, response.body);
    }
  }
}

void FakeApi::Watch(const Place& place, HttpAnswer& answer, std::optional<Fault> fault, int ended) {
  const bool initial = place.query.contains("sendInitialEvents");
  if (initial && !streaming_lists_) return answer.Reply(422, kInvalid);
  std::int64_t version = 0;
  if (!initial) {
    version = std::stoll(place.query.at("resourceVersion"));
    if (model_.Since(place, version, 0).too_large) return answer.Reply(504, kTooLarge);
  }
  ++watches_;
  answer.Begin();
  if (fault == Fault::kSilent) {
    while (!stopping_ && !answer.WaitForEnd(kLookEveryMs)) {
    }
    --watches_;
    return;
  }
  bool goes = true;
  if (fault == Fault::kGone) {
    answer.Write(ErrorEvent(410, "Expired"));
    goes = false;
  } else if (initial) {
    const ApiModel::Events now = model_.Now(place);
    for (const ApiModel::Event& event : now.events) goes = goes && answer.Write(event.line);
    version = now.version;
    goes = goes && answer.Write(Bookmark(version, true));
  }
  while (goes && !stopping_ && ended == ended_ && !answer.WaitForEnd(1)) {
    const ApiModel::Events news = model_.Since(place, version, kLookEveryMs);
    if (news.too_large) break;  // restored under it
    if (news.gone) {
      answer.Write(ErrorEvent(410, "Expired"));
      break;
    }
    for (const ApiModel::Event& event : news.events) {
      if (fault == Fault::kHalfLine) {
        answer.Write(event.line.substr(0, event.line.size() / 2));
        answer.Reset();
        goes = false;
        break;
      }
      goes = goes && answer.Write(event.line);
      version = event.version;
    }
    if (news.events.empty() && news.version > version) {
      version = news.version;
      goes = answer.Write(Bookmark(version, false));
    }
  }
  answer.End();
  --watches_;
}

}  // namespace tessera::kube::testing
