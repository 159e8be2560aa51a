// What a pod knows about its cluster: the service account that the kubelet mounts.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "kube/access/client_config.h"

namespace tessera::kube {

inline constexpr const char* kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

// kFailedPrecondition outside a pod (KUBERNETES_SERVICE_HOST or _PORT is not set, or no token is
// mounted). `variable` is getenv, or a test's.
Result<ClientConfig> InClusterConfig(const std::function<const char*(const char*)>& variable,
                                     const std::string& folder = kServiceAccountFolder);

}  // namespace tessera::kube
