// Bodies of PATCH requests.
//
// Thread safety: a JsonPatch in one thread; the functions are pure.
#pragma once

#include <boost/json/fwd.hpp>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/objects/path.h"

namespace tessera::kube {

inline constexpr const char* kJsonPatchType = "application/json-patch+json";
inline constexpr const char* kMergePatchType = "application/merge-patch+json";
inline constexpr const char* kApplyPatchType = "application/apply-patch+yaml";  // JSON is YAML

// A JSON string, with its quotes.
std::string QuoteJson(std::string_view text);

// RFC 6901: "/metadata/annotations/a~1b" of {"metadata", "annotations", "a/b"}.
std::string JsonPointer(std::initializer_list<std::string_view> path);

// RFC 6902, operation by operation.
class JsonPatch {
 public:
  JsonPatch& Test(std::string_view pointer, const boost::json::value& value);
  JsonPatch& Add(std::string_view pointer, const boost::json::value& value);
  JsonPatch& Replace(std::string_view pointer, const boost::json::value& value);
  JsonPatch& Remove(std::string_view pointer);
  bool empty() const { return operations_.empty(); }
  std::string Text() const { return "[" + operations_ + "]"; }

 private:
  void Append(std::string_view operation, std::string_view pointer,
              const boost::json::value* value);
  std::string operations_;
};

// Changes to labels and annotations; nullopt removes one.
struct MetaChange {
  std::map<std::string, std::optional<std::string>> labels, annotations;
  // Guards, empty for none. A patch that names another resource version is refused with 409, one
  // that names another uid with 409 or 422.
  std::string uid, resource_version;
};

// RFC 7386.
std::string MergePatch(const MetaChange& change);

// A body for server-side apply: `fields` (a JSON object, "" for none) with apiVersion, kind, name
// and namespace. kInvalidArgument when `fields` is no JSON object.
Result<std::string> ApplyBody(const Resource& resource, std::string_view kind,
                              std::string_view space, std::string_view name,
                              std::string_view fields);

}  // namespace tessera::kube
