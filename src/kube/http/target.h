// Where a wire leads to: what is the same for all its requests.
//
// Thread safety: plain values; a pure function.
#pragma once

#include <string>

#include "base/result.h"
#include "kube/access/client_config.h"

namespace tessera::kube {

struct Target {
  std::string base;        // scheme://host:port[/prefix]; the host is the name that TLS must prove
  std::string host;        // the Host header, where it is not that of `base`
  std::string connect_to;  // curl's HOST:PORT:HOST:PORT, where we connect to another than `base`
  bool may_carry_secrets = true;  // false: http to another machine
};

Result<Target> TargetOf(const ClientConfig& config);

}  // namespace tessera::kube
