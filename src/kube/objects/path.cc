#include "kube/objects/path.h"

#include "base/plain_text.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kMaxName = 253;  // RFC 1123 subdomain

bool NameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == ':' || c == '_';
}

std::string Root(const Resource& resource) {
  std::string path = resource.group.empty() ? "/api/" : "/apis/";
  if (!resource.group.empty()) path.append(resource.group).append("/");
  return path.append(resource.version);
}

}  // namespace

Status CheckName(std::string_view field, std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxName && name != "." && name != "..";
  for (char c : name) good = good && NameCharacter(c);
  if (good) return {};
  return Fail(Code::kInvalidArgument,
              std::string(field) + " '" + base::Shown(name) +
                  "': legal are 1 to 253 letters, digits, '-', '.', ':' and '_'");
}

std::string ApiVersion(const Resource& resource) {
  std::string text(resource.group);
  if (!text.empty()) text += '/';
  return text.append(resource.version);
}

Result<std::string> CollectionPath(const Resource& resource, std::string_view space) {
  std::string path = Root(resource);
  if (!space.empty()) {
    if (!resource.namespaced) {
      return Fail(Code::kInvalidArgument, "namespace '" + base::Shown(space) +
                                              "': " + std::string(resource.plural) + " have none");
    }
    if (const Status good = CheckName("namespace", space); !good) return Fail(good.error());
    path.append("/namespaces/").append(space);
  }
  return path.append("/").append(resource.plural);
}

Result<std::string> ObjectPath(const Resource& resource, std::string_view space,
                               std::string_view name, std::string_view subresource) {
  if (resource.namespaced && space.empty()) {
    return Fail(Code::kInvalidArgument,
                "namespace '': " + std::string(resource.plural) + " live in one");
  }
  if (const Status good = CheckName("name", name); !good) return Fail(good.error());
  Result<std::string> path = CollectionPath(resource, space);
  if (!path) return path;
  path->append("/").append(name);
  if (!subresource.empty()) path->append("/").append(subresource);
  return path;
}

}  // namespace tessera::kube
