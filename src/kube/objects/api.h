// The verbs of the API, one call each. The body of the answer as it is; refusals as errors
// (status.h): kNotFound, kAborted (conflict), kAlreadyExists, ...
//
// Thread safety: all methods from any thread; each blocks as Transport does.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "kube/http/transport.h"
#include "kube/objects/path.h"

namespace tessera::kube {

// The API would have to find the object as it was seen, or refuse (kAborted).
struct Preconditions {
  std::string uid, resource_version;  // empty: whatever it is
};

class Api {
 public:
  // `transport` must outlive the object. `field_manager` is who we are in managedFields.
  Api(Transport& transport, std::string field_manager,
      std::int64_t timeout_ns = Request().timeout_ns)
      : transport_(transport), field_manager_(std::move(field_manager)), timeout_ns_(timeout_ns) {}

  // The same with another time for each call.
  Api Within(std::int64_t timeout_ns) const { return {transport_, field_manager_, timeout_ns}; }

  Result<std::string> Get(const std::string& path, std::stop_token stop);
  Result<std::string> Create(const std::string& path, std::string body, std::stop_token stop);
  // The body names the resourceVersion that it replaces.
  Result<std::string> Replace(const std::string& path, std::string body, std::stop_token stop);
  // `content_type` is one of patch.h.
  Result<std::string> Patch(const std::string& path, const char* content_type, std::string body,
                            std::stop_token stop);
  // Server-side apply; `force` takes fields from other managers.
  Result<std::string> Apply(const std::string& path, std::string body, bool force,
                            std::stop_token stop);
  Status Delete(const std::string& path, const Preconditions& only, std::stop_token stop);

  Transport& transport() { return transport_; }

 private:
  Result<std::string> Call(Request request, std::stop_token stop);
  std::string Managed(std::string path) const;

  Transport& transport_;
  std::string field_manager_;
  std::int64_t timeout_ns_;
};

}  // namespace tessera::kube
