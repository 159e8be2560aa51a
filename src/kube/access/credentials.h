// Who we are to the API server, asked for before every request, so that tokens and certificates may
// be rotated under a running client.
//
// Thread safety: all methods from any thread. Get may block: a token file is read, an exec plugin
// runs (one at a time; the others wait for its answer). Never called on the network thread.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "kube/access/client_config.h"

namespace tessera::kube {

struct Identity {
  std::string authorization;  // value of the header, empty: none
  std::string certificate_pem, key_pem;

  friend bool operator==(const Identity&, const Identity&) = default;
};

class Credentials {
 public:
  virtual ~Credentials() = default;
  virtual Result<Identity> Get(std::stop_token stop) = 0;
  // The server answered 401 to `used`: what is cached of it is dropped, so that the next Get asks
  // the source again. Does nothing when a newer identity is cached already.
  virtual void Refused(const Identity& used) = 0;
};

// A token file is read again after 60 s, and 10 s sooner when it could not be read: the last token
// serves until then (client-go transport/token_source.go). Certificate files are compared at the
// same pace.
inline constexpr std::int64_t kReadAgainNs = 60'000'000'000;
inline constexpr std::int64_t kLeewayNs = 10'000'000'000;

// `clock` must outlive the result.
std::unique_ptr<Credentials> MakeCredentials(const ClientConfig& config, base::Clock& clock);

}  // namespace tessera::kube
