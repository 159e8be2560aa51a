// Certificates for one test: an authority and what it vouches for, as PEM.
#pragma once

#include <string>

namespace tessera::kube::testing {

struct KeyPair {
  std::string certificate_pem, key_pem;
};

KeyPair MakeAuthority(const std::string& name);

// `host` becomes the common name and, when `is_server`, the only name that a client may know it by
// (an address when it looks like one).
KeyPair Issue(const KeyPair& authority, const std::string& host, bool is_server);

}  // namespace tessera::kube::testing
