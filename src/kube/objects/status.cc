#include "kube/objects/status.h"

#include <algorithm>

#include "base/plain_text.h"
#include "kube/pace/timer.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kMostRetrySeconds = 300;
constexpr std::string_view kTooLarge = "Too large resource version";  // before 1.20 nothing else

Status ReadCause(JsonValue& value, ApiStatus& status) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key != "reason") return {};
    const Result<std::string> reason = field.String();
    if (!reason) return Fail(reason.error());
    if (*reason == "ResourceVersionTooLarge") status.version_too_large = true;
    return {};
  });
}

Status ReadDetails(JsonValue& value, ApiStatus& status) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "causes") {
      return field.Array([&](JsonValue& cause) { return ReadCause(cause, status); });
    }
    if (key != "retryAfterSeconds") return {};
    const Result<std::int64_t> seconds = field.Integer();
    if (!seconds) return Fail(seconds.error());
    status.retry_after_ns = std::clamp<std::int64_t>(*seconds, 0, kMostRetrySeconds) * kNsPerSecond;
    return {};
  });
}

Code CodeOfNumber(int http_code) {
  switch (http_code) {
    case 400:
    case 405:
    case 406:
    case 415:
    case 422:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
    case 412:
      return Code::kAborted;
    case 410:
      return Code::kOutOfRange;
    case 413:
    case 429:
      return Code::kResourceExhausted;
    case 408:
    case 504:
      return Code::kDeadlineExceeded;
    default:
      return http_code >= 500 ? Code::kUnavailable : Code::kInternal;
  }
}

}  // namespace

Result<ApiStatus> ReadStatus(JsonValue& value) {
  ApiStatus status;
  const Status done = value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "message") return Into(field.String(), status.message);
    if (key == "reason") return Into(field.String(), status.reason);
    if (key == "details") return ReadDetails(field, status);
    if (key == "code") {
      const Result<std::int64_t> code = field.Integer();
      if (!code) return Fail(code.error());
      status.http_code = *code >= 100 && *code < 600 ? static_cast<int>(*code) : 500;
    }
    return {};
  });
  if (!done) return Fail(done.error());
  if (status.message.find(kTooLarge) != std::string::npos) status.version_too_large = true;
  return status;
}

ApiStatus StatusOfAnswer(int http_code, std::string body) {
  ApiStatus status;
  const Status done =
      ReadJson(body, [&](JsonValue& root) -> Status { return Into(ReadStatus(root), status); });
  if (!done) {
    status = {};
    status.message = base::Shown(body);
  }
  status.http_code = http_code;
  return status;
}

Code CodeOf(const ApiStatus& status) {
  if (status.reason == "AlreadyExists") return Code::kAlreadyExists;  // 409, as conflicts are
  if (status.reason == "Expired" || status.reason == "Gone") return Code::kOutOfRange;
  return CodeOfNumber(status.http_code);
}

Error ErrorOf(const ApiStatus& status) {
  std::string text = status.message.empty() ? status.reason : status.message;
  if (text.empty()) text = "the API server answered " + std::to_string(status.http_code);
  return {CodeOf(status), base::Message(text)};
}

}  // namespace tessera::kube
