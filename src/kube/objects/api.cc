#include "kube/objects/api.h"

#include "kube/objects/patch.h"
#include "kube/objects/status.h"
#include "kube/text/uri.h"

namespace tessera::kube {

Result<std::string> Api::Call(Request request, std::stop_token stop) {
  request.timeout_ns = timeout_ns_;
  const std::string what = request.method + " " + request.path.substr(0, request.path.find('?'));
  Result<Response> response = transport_.Send(request, std::move(stop));
  if (!response) return FailIn(what, response.error());
  if (response->ok()) return std::move(response->body);
  return FailIn(what, ErrorOf(StatusOfAnswer(response->status, std::move(response->body))));
}

std::string Api::Managed(std::string path) const {
  AppendQuery(path, "fieldManager", field_manager_);
  return path;
}

Result<std::string> Api::Get(const std::string& path, std::stop_token stop) {
  return Call({.path = path}, std::move(stop));
}

Result<std::string> Api::Create(const std::string& path, std::string body, std::stop_token stop) {
  return Call({.method = "POST", .path = Managed(path), .body = std::move(body)}, std::move(stop));
}

Result<std::string> Api::Replace(const std::string& path, std::string body, std::stop_token stop) {
  return Call({.method = "PUT", .path = Managed(path), .body = std::move(body)}, std::move(stop));
}

Result<std::string> Api::Patch(const std::string& path, const char* content_type, std::string body,
                               std::stop_token stop) {
  return Call({.method = "PATCH",
               .path = Managed(path),
               .body = std::move(body),
               .content_type = content_type},
              std::move(stop));
}

Result<std::string> Api::Apply(const std::string& path, std::string body, bool force,
                               std::stop_token stop) {
  std::string to = Managed(path);
  if (force) AppendQuery(to, "force", "true");
  return Call({.method = "PATCH",
               .path = std::move(to),
               .body = std::move(body),
               .content_type = kApplyPatchType},
              std::move(stop));
}

Status Api::Delete(const std::string& path, const Preconditions& only, std::stop_token stop) {
  std::string body;
  if (!only.uid.empty() || !only.resource_version.empty()) {
    body = R"({"apiVersion":"v1","kind":"DeleteOptions","preconditions":{)";
    if (!only.uid.empty()) body += "\"uid\":" + QuoteJson(only.uid);
    if (!only.resource_version.empty()) {
      body += (only.uid.empty() ? "" : ",") + std::string("\"resourceVersion\":") +
              QuoteJson(only.resource_version);
    }
    body += "}}";
  }
  const Result<std::string> done =
      Call({.method = "DELETE", .path = path, .body = std::move(body)}, std::move(stop));
  if (!done) return Fail(done.error());
  return {};
}

}  // namespace tessera::kube
