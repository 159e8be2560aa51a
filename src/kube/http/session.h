// A transport that behaves: who we are in every request, a rate limit, and another try where that
// is safe.
//
// * 401: what was cached of the credentials is dropped and the request is sent once more.
// * 429, and 5xx with Retry-After: the server did not do it; waits as long as it says (or a
// back-off)
//   and sends again, whatever the method.
// * 5xx without it, and broken connections: GET only. Not reached at all (kUnavailable): any
// method.
// * Never waits past the request's deadline: then the last answer or error is returned at once.
// * Streams are paced and authenticated the same way; beyond the 401 nothing is tried again, since
//   their callers know where to go on.
//
// Thread safety: all methods from any thread.
#pragma once

#include <memory>

#include "kube/http/transport.h"
#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"

namespace tessera::kube {

struct SessionOptions {
  double requests_per_second =
      50;  // 0: no limit. client-go's 5 makes clusters wait for their clients
  int burst = 100;
  int most_tries = 8;
  BackoffConfig backoff{.first_ns = 200'000'000, .most_ns = 10'000'000'000};
};

// `timer` must outlive the result.
std::unique_ptr<Transport> MakeSession(std::unique_ptr<Transport> wire,
                                       std::unique_ptr<Credentials> credentials,
                                       const SessionOptions& options, Timer& timer);

}  // namespace tessera::kube
