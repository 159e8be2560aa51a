// The real transport: HTTP over TLS by libcurl. One try a request; session.h makes a client of it.
//
// Thread safety: all methods from any thread. One thread of its own does the network; it runs no
// code of callers. A stream whose handler is slow is held at the socket: at most 1 MiB of it waits
// in memory. The object must outlive its calls; destroying it ends those that are left
// (kCancelled).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "kube/access/client_config.h"
#include "kube/http/transport.h"

namespace tessera::kube {

struct WireOptions {
  std::string user_agent = "tessera";
  std::int64_t connect_timeout_ns = 10'000'000'000;  // name, TCP and TLS; then kUnavailable
};

// Requests share connections (HTTP/2 where the server has it); each stream has one of its own, so
// that one that is held does not hold others. The certificate of the server is checked against
// config.ca_pem or ca_file (read again every 60 s); TLS 1.2 at least; redirects are not followed.
// kInvalidArgument for a server that is no http(s) URL.
Result<std::unique_ptr<Transport>> MakeWire(const ClientConfig& config, const WireOptions& options);

}  // namespace tessera::kube
