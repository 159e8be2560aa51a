#include "kube/access/in_cluster.h"

#include "base/files.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kMaxFile = 1u << 20;

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

Result<ClientConfig> InClusterConfig(const std::function<const char*(const char*)>& variable,
                                     const std::string& folder) {
  const char* host = variable("KUBERNETES_SERVICE_HOST");
  const char* port = variable("KUBERNETES_SERVICE_PORT");
  if (!host || !port || !*host || !*port) {
    return Fail(Code::kFailedPrecondition,
                "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  const std::string token_file = folder + "/token";
  if (const Result<std::string> token = base::ReadFile(token_file, kMaxFile); !token) {
    return Fail(Code::kFailedPrecondition,
                "no service account token is mounted: " + token.error().message);
  }
  ClientConfig config;
  const bool is_ipv6 = std::string_view(host).find(':') != std::string_view::npos;
  config.server =
      std::string("https://") + (is_ipv6 ? "[" : "") + host + (is_ipv6 ? "]" : "") + ":" + port;
  config.ca_file = folder + "/ca.crt";
  config.credential.token_file = token_file;
  if (const Result<std::string> space = base::ReadFile(folder + "/namespace", kMaxFile)) {
    if (const std::string name = Trimmed(*space); !name.empty()) config.default_namespace = name;
  }
  return config;
}

}  // namespace tessera::kube
