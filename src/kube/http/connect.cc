#include "kube/http/connect.h"

#include <utility>

#include "kube/access/credentials.h"

namespace tessera::kube {

Result<std::unique_ptr<Transport>> Connect(const ClientConfig& config,
                                           const ConnectOptions& options) {
  Result<std::unique_ptr<Transport>> wire = MakeWire(config, options.wire);
  if (!wire) return wire;
  return MakeSession(std::move(*wire), MakeCredentials(config, base::RealClock()), options.session,
                     RealTimer());
}

}  // namespace tessera::kube
