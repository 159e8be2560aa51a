#include "kube/access/kubeconfig.h"

#include <map>

#include "base/files.h"
#include "base/yaml/yaml.h"
#include "kube/text/base64.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kMaxFile = 4u << 20;

struct Entry {
  std::string file;
  YAML::Node body;
};

struct Merged {
  std::map<std::string, Entry> clusters, users, contexts;
  std::string current_context;
};

YAML::Node Get(const YAML::Node& node, const char* key) {
  if (!node.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  return node[key];
}

std::string Text(const YAML::Node& node, const char* key) {
  const YAML::Node value = Get(node, key);
  return value && value.IsScalar() ? value.Scalar() : std::string();
}

bool Flag(const YAML::Node& node, const char* key) { return Text(node, key) == "true"; }

std::string Absolute(const std::string& path, const std::string& file) {
  if (path.empty() || path[0] == '/') return path;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? path : file.substr(0, slash + 1) + path;
}

Status Collect(const YAML::Node& document, const char* list, const char* body,
               const std::string& file, std::map<std::string, Entry>& into) {
  const YAML::Node entries = Get(document, list);
  if (!entries || entries.IsNull()) return {};
  if (!entries.IsSequence()) {
    return Fail(Code::kInvalidArgument, file + ": '" + list + "' must be a list");
  }
  for (const YAML::Node& entry : entries) {
    const std::string name = Text(entry, "name");
    if (name.empty()) {
      return Fail(Code::kInvalidArgument, file + ": an entry of '" + list + "' has no name");
    }
    into.emplace(name, Entry{file, Get(entry, body)});
  }
  return {};
}

Status MergeFile(const std::string& file, Merged& merged) {
  const Result<std::string> text = base::ReadFile(file, kMaxFile);
  if (!text) return Fail(text.error());
  const Result<std::vector<YAML::Node>> documents = base::LoadYaml(*text);
  if (!documents) return FailIn(file, documents.error());
  if (documents->empty()) return {};
  const YAML::Node& document = documents->front();
  if (!document.IsMap()) return Fail(Code::kInvalidArgument, file + ": not a kubeconfig");
  for (auto [list, body, into] : {std::tuple{"clusters", "cluster", &merged.clusters},
                                  std::tuple{"users", "user", &merged.users},
                                  std::tuple{"contexts", "context", &merged.contexts}}) {
    if (Status ok = Collect(document, list, body, file, *into); !ok) return ok;
  }
  if (merged.current_context.empty()) merged.current_context = Text(document, "current-context");
  return {};
}

Result<std::string> Data(const Entry& entry, const char* key) {
  const std::string text = Text(entry.body, key);
  Result<std::string> bytes = DecodeBase64(text);
  if (!bytes) return FailIn(entry.file + ": '" + key + "'", bytes.error());
  return bytes;
}

Status ReadCluster(const Entry& entry, ClientConfig& config) {
  config.server = Text(entry.body, "server");
  while (config.server.ends_with('/')) config.server.pop_back();
  if (!config.server.starts_with("https://") && !config.server.starts_with("http://")) {
    return Fail(Code::kInvalidArgument, entry.file + ": 'server' is '" + config.server +
                                            "', it must start with https:// or http://");
  }
  Result<std::string> ca = Data(entry, "certificate-authority-data");
  if (!ca) return Fail(ca.error());
  config.ca_pem = std::move(*ca);
  config.ca_file = Absolute(Text(entry.body, "certificate-authority"), entry.file);
  config.tls_server_name = Text(entry.body, "tls-server-name");
  if (const std::string proxy = Text(entry.body, "proxy-url"); !proxy.empty()) {
    config.proxy_url = proxy;
  }
  config.insecure_skip_tls_verify = Flag(entry.body, "insecure-skip-tls-verify");
  if (config.insecure_skip_tls_verify) {
    config.warnings.push_back("the certificate of " + config.server +
                              " is NOT verified (insecure-skip-tls-verify in " + entry.file +
                              "): anybody on the way can read and change what we send");
  }
  return {};
}

Result<ExecConfig> ReadExec(const YAML::Node& node, const std::string& file) {
  ExecConfig exec;
  exec.api_version = Text(node, "apiVersion");
  exec.command = Text(node, "command");
  exec.install_hint = Text(node, "installHint");
  exec.provide_cluster_info = Flag(node, "provideClusterInfo");
  if (exec.command.empty()) {
    return Fail(Code::kInvalidArgument, file + ": 'exec' has no command");
  }
  if (exec.api_version != "client.authentication.k8s.io/v1" &&
      exec.api_version != "client.authentication.k8s.io/v1beta1") {
    return Fail(Code::kInvalidArgument,
                file + ": 'exec' has apiVersion '" + exec.api_version +
                    "'; client.authentication.k8s.io/v1 and /v1beta1 are known");
  }
  if (Text(node, "interactiveMode") == "Always") {
    return Fail(Code::kUnimplemented,
                file + ": 'exec' asks at a terminal (interactiveMode Always); there is none here");
  }
  // A bare name is looked up in PATH, anything with a slash beside the file.
  if (exec.command.find('/') != std::string::npos) exec.command = Absolute(exec.command, file);
  if (const YAML::Node list = Get(node, "args"); list && list.IsSequence()) {
    for (const YAML::Node& word : list) {
      exec.arguments.push_back(word.IsScalar() ? word.Scalar() : std::string());
    }
  }
  if (const YAML::Node list = Get(node, "env"); list && list.IsSequence()) {
    for (const YAML::Node& pair : list) {
      exec.environment.emplace_back(Text(pair, "name"), Text(pair, "value"));
    }
  }
  return exec;
}

Status ReadUser(const Entry& entry, CredentialConfig& credential) {
  for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra", "auth-provider"}) {
    if (Get(entry.body, key)) {
      return Fail(Code::kUnimplemented, entry.file + ": '" + key + "' of a user is not supported");
    }
  }
  credential.token = Text(entry.body, "token");
  credential.token_file = Absolute(Text(entry.body, "tokenFile"), entry.file);
  credential.username = Text(entry.body, "username");
  credential.password = Text(entry.body, "password");
  Result<std::string> certificate = Data(entry, "client-certificate-data");
  if (!certificate) return Fail(certificate.error());
  Result<std::string> key = Data(entry, "client-key-data");
  if (!key) return Fail(key.error());
  credential.client_certificate_pem = std::move(*certificate);
  credential.client_key_pem = std::move(*key);
  credential.client_certificate_file = Absolute(Text(entry.body, "client-certificate"), entry.file);
  credential.client_key_file = Absolute(Text(entry.body, "client-key"), entry.file);
  const bool certificate_given =
      !credential.client_certificate_pem.empty() || !credential.client_certificate_file.empty();
  const bool key_given = !credential.client_key_pem.empty() || !credential.client_key_file.empty();
  if (certificate_given != key_given) {
    return Fail(Code::kInvalidArgument,
                entry.file + ": client-certificate and client-key belong together");
  }
  if (const YAML::Node node = Get(entry.body, "exec"); node && node.IsMap()) {
    Result<ExecConfig> exec = ReadExec(node, entry.file);
    if (!exec) return Fail(exec.error());
    credential.exec = std::move(*exec);
  }
  return {};
}

Result<Entry> Find(const std::map<std::string, Entry>& entries, const char* kind,
                   const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end()) {
    return Fail(Code::kNotFound, std::string("kubeconfig: no ") + kind + " '" + name + "'");
  }
  return found->second;
}

Result<ClientConfig> Choose(const Merged& merged, const std::string& wanted) {
  const std::string& name = wanted.empty() ? merged.current_context : wanted;
  if (name.empty()) return Fail(Code::kNotFound, "kubeconfig: no current-context is set");
  const Result<Entry> context = Find(merged.contexts, "context", name);
  if (!context) return Fail(context.error());
  const Result<Entry> cluster = Find(merged.clusters, "cluster", Text(context->body, "cluster"));
  if (!cluster) return Fail(cluster.error());

  ClientConfig config;
  if (Status ok = ReadCluster(*cluster, config); !ok) return Fail(ok.error());
  if (const std::string user_name = Text(context->body, "user"); !user_name.empty()) {
    const Result<Entry> user = Find(merged.users, "user", user_name);
    if (!user) return Fail(user.error());
    if (Status ok = ReadUser(*user, config.credential); !ok) return Fail(ok.error());
  }
  if (const std::string space = Text(context->body, "namespace"); !space.empty()) {
    config.default_namespace = space;
  }
  return config;
}

}  // namespace

KubeconfigSource DefaultSource(const char* kubeconfig_variable, const char* home) {
  KubeconfigSource source;
  std::string_view list = kubeconfig_variable ? kubeconfig_variable : "";
  while (!list.empty()) {
    const std::string_view file = list.substr(0, list.find(':'));
    list.remove_prefix(std::min(list.size(), file.size() + 1));
    if (!file.empty()) source.files.emplace_back(file);
  }
  if (source.files.empty() && home) source.files.push_back(std::string(home) + "/.kube/config");
  return source;
}

Result<ClientConfig> LoadKubeconfig(const KubeconfigSource& source) {
  try {  // the YAML library throws when a node is not what it is used as
    Merged merged;
    std::string missing;
    std::size_t read = 0;
    for (const std::string& file : source.files) {
      const Status ok = MergeFile(file, merged);
      if (ok) {
        ++read;
      } else if (source.all_must_exist || ok.error().code != Code::kNotFound) {
        return FailIn("kubeconfig", ok.error());
      } else {
        missing += (missing.empty() ? "" : ", ") + file;
      }
    }
    if (read == 0) return Fail(Code::kNotFound, "kubeconfig: no such file: " + missing);
    return Choose(merged, source.context);
  } catch (const YAML::Exception& e) {
    return Fail(Code::kInvalidArgument, "kubeconfig: " + e.msg);
  }
}

}  // namespace tessera::kube
