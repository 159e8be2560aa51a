// What the API server says when it refuses: metav1.Status, and the code that it comes down to.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kube/objects/reader.h"

namespace tessera::kube {

struct ApiStatus {
  int http_code = 0;
  std::string reason;               // a word for programs: NotFound, Conflict, Expired, ...
  std::string message;              // a sentence for people
  std::int64_t retry_after_ns = 0;  // details.retryAfterSeconds; 0: nothing said
  bool version_too_large = false;   // cause ResourceVersionTooLarge: we saw what it has not yet
};

Result<ApiStatus> ReadStatus(JsonValue& value);

// From the answer to a request: its code, and its body as far as that is a Status. Never fails: a
// proxy's page gives a Status with the code and its first words.
ApiStatus StatusOfAnswer(int http_code, std::string body);

// kAborted: a conflict, read again. kOutOfRange: the version is gone, list again.
// kUnavailable: try later. kPermissionDenied, kUnauthenticated, kNotFound, kAlreadyExists,
// kInvalidArgument, kDeadlineExceeded, kResourceExhausted (too many requests) as their names say.
Code CodeOf(const ApiStatus& status);

// The message as it is, or the reason, or the number; one line.
Error ErrorOf(const ApiStatus& status);

}  // namespace tessera::kube
