#include "kube/http/target.h"

#include <curl/curl.h>

#include <memory>

#include "base/plain_text.h"

namespace tessera::kube {
namespace {

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string Part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

}  // namespace

Result<Target> TargetOf(const ClientConfig& config) {
  const Url url(curl_url(), curl_url_cleanup);
  const bool parsed =
      url && curl_url_set(url.get(), CURLUPART_URL, config.server.c_str(), 0) == CURLUE_OK;
  const std::string scheme = parsed ? Part(url, CURLUPART_SCHEME) : "";
  const std::string host = parsed ? Part(url, CURLUPART_HOST) : "";
  if ((scheme != "https" && scheme != "http") || host.empty() ||
      !Part(url, CURLUPART_USER).empty() || !Part(url, CURLUPART_QUERY).empty()) {
    return Fail(Code::kInvalidArgument,
                "server '" + base::Shown(config.server) + "': legal is https://HOST[:PORT][/PATH]");
  }
  Target target{.base = config.server};
  while (target.base.ends_with('/')) target.base.pop_back();
  target.may_carry_secrets = scheme == "https" || IsLoopback(host);
  if (config.tls_server_name.empty() || config.tls_server_name == host) return target;
  const std::string port = Part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  target.host = host + ":" + port;
  target.connect_to = config.tls_server_name + ":" + port + ":" + host + ":" + port;
  const std::string path = Part(url, CURLUPART_PATH);
  target.base = scheme + "://" + config.tls_server_name + ":" + port + (path == "/" ? "" : path);
  while (target.base.ends_with('/')) target.base.pop_back();
  return target;
}

}  // namespace tessera::kube
