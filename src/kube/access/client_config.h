// Where the API server is and who we are to it: the plain values that a kubeconfig or a pod's
// service account come down to. Paths are absolute; PEM is text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::kube {

struct ExecConfig {
  std::string api_version;  // client.authentication.k8s.io/v1 or /v1beta1
  std::string command;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;
  bool provide_cluster_info = false;
  std::string install_hint;
};

// At most one way to authenticate by header (exec, then token_file, then token, then basic) and one
// by certificate (exec, then PEM, then files).
struct CredentialConfig {
  std::string token;
  std::string token_file;
  std::string username, password;
  std::string client_certificate_pem, client_key_pem;
  std::string client_certificate_file, client_key_file;
  std::optional<ExecConfig> exec;
};

struct ClientConfig {
  std::string server;   // https://host:port[/prefix], no slash at the end
  std::string ca_pem;   // empty: the system's authorities
  std::string ca_file;  // used when ca_pem is empty; read again when it changes
  bool insecure_skip_tls_verify = false;
  std::string tls_server_name;           // empty: the host of `server`
  std::optional<std::string> proxy_url;  // unset: HTTPS_PROXY and NO_PROXY as curl reads them
  std::string default_namespace = "default";
  CredentialConfig credential;
  std::vector<std::string> warnings;  // what the operator must hear, one line each
};

}  // namespace tessera::kube
