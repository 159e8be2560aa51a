// From a configuration to a client: wire, credentials and session in one.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "kube/access/client_config.h"
#include "kube/http/session.h"
#include "kube/http/wire.h"

namespace tessera::kube {

struct ConnectOptions {
  WireOptions wire;
  SessionOptions session;
};

// Nothing is sent yet. Errors as MakeWire's. Thread safety of the result: transport.h.
Result<std::unique_ptr<Transport>> Connect(const ClientConfig& config,
                                           const ConnectOptions& options = {});

}  // namespace tessera::kube
