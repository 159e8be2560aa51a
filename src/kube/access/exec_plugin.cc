#include "kube/access/exec_plugin.h"

#include "kube/access/run_command.h"
#include "kube/text/base64.h"
#include "kube/text/json.h"
#include "kube/text/time.h"

namespace tessera::kube {
namespace {

// The last line of what a program said, printable and cut, for one line of our own.
std::string LastWords(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (const std::size_t line = text.rfind('\n'); line != text.npos) text.remove_prefix(line + 1);
  std::string words;
  for (char c : text.substr(0, 200)) words += c >= ' ' && c < 0x7f ? c : '?';
  return words;
}

}  // namespace

std::string ExecInfo(const ClientConfig& config) {
  const ExecConfig& exec = *config.credential.exec;
  boost::json::object spec{{"interactive", false}};
  if (exec.provide_cluster_info) {
    boost::json::object cluster{{"server", config.server}};
    if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
    if (config.insecure_skip_tls_verify) cluster["insecure-skip-tls-verify"] = true;
    if (!config.ca_pem.empty()) {
      cluster["certificate-authority-data"] = EncodeBase64(config.ca_pem);
    }
    if (config.proxy_url) cluster["proxy-url"] = *config.proxy_url;
    spec["cluster"] = std::move(cluster);
  }
  return boost::json::serialize(boost::json::object{
      {"apiVersion", exec.api_version}, {"kind", "ExecCredential"}, {"spec", std::move(spec)}});
}

Result<ExecAnswer> ParseExecCredential(std::string_view text, const std::string& api_version) {
  const Result<boost::json::value> root = ParseJson(text);
  if (!root) return Fail(root.error());
  if (StringAt(*root, {"kind"}) != "ExecCredential" ||
      StringAt(*root, {"apiVersion"}) != api_version) {
    return Fail(Code::kDataLoss, "not an ExecCredential of " + api_version);
  }
  ExecAnswer answer;
  const std::string token = StringAt(*root, {"status", "token"});
  for (char c : token) {
    if (c <= ' ' || c >= 0x7f)
      return Fail(Code::kDataLoss, "a token with a character that no header may have");
  }
  if (!token.empty()) answer.identity.authorization = "Bearer " + token;
  answer.identity.certificate_pem = StringAt(*root, {"status", "clientCertificateData"});
  answer.identity.key_pem = StringAt(*root, {"status", "clientKeyData"});
  if (answer.identity.certificate_pem.empty() != answer.identity.key_pem.empty()) {
    return Fail(Code::kDataLoss, "clientCertificateData and clientKeyData belong together");
  }
  if (answer.identity == Identity{}) {
    return Fail(Code::kDataLoss, "an ExecCredential without a token or a certificate");
  }
  if (const std::string expires = StringAt(*root, {"status", "expirationTimestamp"});
      !expires.empty()) {
    const Result<std::int64_t> time = ParseTime(expires);
    if (!time) return FailIn("expirationTimestamp", time.error());
    answer.expires_seconds = *time / 1'000'000;
  }
  return answer;
}

Result<ExecAnswer> RunExecPlugin(const ClientConfig& config, std::int64_t timeout_ns,
                                 std::stop_token stop) {
  const ExecConfig& exec = *config.credential.exec;
  Command command;
  command.words = {exec.command};
  command.words.insert(command.words.end(), exec.arguments.begin(), exec.arguments.end());
  command.environment = exec.environment;
  command.environment.emplace_back("KUBERNETES_EXEC_INFO", ExecInfo(config));
  command.timeout_ns = timeout_ns;
  const std::string what = "credential plugin '" + exec.command + "'";
  const Result<CommandOutput> output = RunCommand(command, stop);
  const std::string hint =
      exec.install_hint.empty() ? "" : " (" + LastWords(exec.install_hint) + ")";
  if (!output) return Fail(output.error().code, what + ": " + output.error().message + hint);
  if (output->exit_code != 0) {
    return Fail(Code::kUnavailable, what + " ended with " + std::to_string(output->exit_code) +
                                        ": " + LastWords(output->err) + hint);
  }
  Result<ExecAnswer> answer = ParseExecCredential(output->out, exec.api_version);
  if (!answer) return FailIn(what, answer.error());
  return answer;
}

}  // namespace tessera::kube
