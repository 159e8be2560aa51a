// Where an object lives in the API: /api/v1/namespaces/NS/pods/NAME and its kin.
//
// Thread safety: pure functions. Names are checked, so that none of them can leave its place in the
// path ("..", "a/b", "a?b"); selectors and other values of a query are escaped.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::kube {

struct Resource {
  std::string_view group;  // "" for the core group
  std::string_view version;
  std::string_view plural;
  bool namespaced = true;

  friend bool operator==(const Resource&, const Resource&) = default;
};

inline constexpr Resource kPods{"", "v1", "pods"};
inline constexpr Resource kNodes{"", "v1", "nodes", false};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases"};
inline constexpr Resource kEvents{"events.k8s.io", "v1", "events"};

// The apiVersion of its objects: "v1" or "group/version".
std::string ApiVersion(const Resource& resource);

// All of a namespace, or with an empty one all of the cluster. kInvalidArgument for a namespace
// that is none, and for one with a resource that has none.
Result<std::string> CollectionPath(const Resource& resource, std::string_view space = {});

// One object, or a subresource of it ("status", "binding"). `space` is empty for resources without
// namespace, and only for them.
Result<std::string> ObjectPath(const Resource& resource, std::string_view space,
                               std::string_view name, std::string_view subresource = {});

// What Kubernetes takes as a name in a path: 1 to 253 letters, digits, '-', '.', ':' and '_' (the
// last two in RBAC names only), neither "." nor "..".
Status CheckName(std::string_view field, std::string_view name);

}  // namespace tessera::kube
