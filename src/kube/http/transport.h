// The seam between this library and the network: one request, one answer, or lines of it as they
// come. The real one is made by wire.h (libcurl) and session.h (credentials, rate limit, retries);
// tests give fakes.
//
// Thread safety: all methods from any thread; each blocks its caller until the answer is there, a
// deadline passes or `stop` is asked for, and calls its handlers on that thread.
//
// Errors, so that callers can tell what may have happened:
//   kUnavailable        the server was not reached: nothing was sent
//   kDataLoss           the connection broke: the server may have done it
//   kDeadlineExceeded   the same, after timeout_ns or idle_ns
//   kCancelled          the same, by `stop`
//   kResourceExhausted  the answer, or a line of it, is longer than max_bytes
//   kUnauthenticated    the server's certificate is not trusted, or ours was not taken
//   kFailedPrecondition credentials would go over the network in clear
// An answer with an error code is an answer: Response, not Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/access/credentials.h"

namespace tessera::kube {

struct Request {
  std::string method = "GET";
  std::string path;  // from the first slash, escaped, with its query
  std::string body;
  std::string content_type = "application/json";  // of the body
  std::int64_t timeout_ns = 30'000'000'000;  // from call to last byte, retries included; 0: none
  std::int64_t idle_ns = 0;                  // of a stream: most time without a byte; 0: none
  std::size_t max_bytes = 64u << 20;         // of the answer; of a stream: of one line
  bool retry = true;  // false: the first answer, whatever it is (for pings and evictions)
  Identity identity;  // set by the session, not by callers
};

struct Response {
  int status = 0;
  std::int64_t retry_after_ns = -1;  // the header, at most 300 s; -1: not given
  std::string body;                  // empty for a stream that was opened

  bool ok() const { return status >= 200 && status < 300; }
};

struct LineHandler {
  // The answer is 2xx and lines will follow. May be empty.
  std::function<void()> opened;
  // One line without its end. It may be changed, moved from, kept. False ends the stream: Stream
  // then returns the response, as it does at the end of the body. A last line that has no end is
  // not handed out: the stream broke in the middle of it, which is kDataLoss.
  std::function<bool(std::string& line)> line;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Result<Response> Send(const Request& request, std::stop_token stop) = 0;
  virtual Result<Response> Stream(const Request& request, const LineHandler& handler,
                                  std::stop_token stop) = 0;
};

}  // namespace tessera::kube
