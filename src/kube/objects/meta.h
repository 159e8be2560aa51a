// What every object of the API has, and how it is read.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kube/objects/reader.h"

namespace tessera::kube {

struct OwnerReference {
  std::string api_version, kind, name, uid;
  bool controller = false;

  friend bool operator==(const OwnerReference&, const OwnerReference&) = default;
};

// managedFields are not kept: they are often most of an object.
struct ObjectMeta {
  std::string name, space, uid;  // space: namespace, which is a word of C++
  std::string resource_version;  // opaque
  std::int64_t generation = 0;
  std::int64_t created_micros = 0;                                       // since 1970
  std::optional<std::int64_t> deleted_micros;                            // set: on its way out
  std::vector<std::pair<std::string, std::string>> labels, annotations;  // sorted by key
  std::vector<OwnerReference> owners;
  std::vector<std::string> finalizers;

  friend bool operator==(const ObjectMeta&, const ObjectMeta&) = default;
};

// "namespace/name", or the name alone: one per collection, whatever it is re-created as.
std::string KeyOf(const ObjectMeta& meta);

// nullptr where there is none.
const std::string* Find(const std::vector<std::pair<std::string, std::string>>& sorted,
                        std::string_view key);

Result<ObjectMeta> ReadMeta(JsonValue& value);

// The base of what caches hold; types derive from it and are never changed once they are shared.
struct Object {
  ObjectMeta meta;

  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = default;
  Object& operator=(const Object&) = default;
};
using ObjectPtr = std::shared_ptr<const Object>;

// Reads one object of a type. Errors as in reader.h.
using ObjectReader = std::function<Result<ObjectPtr>(JsonValue& value)>;

// Reads metadata and nothing else.
Result<ObjectPtr> ReadObjectMeta(JsonValue& value);

// For a type of one's own: `field` is asked for every field but "metadata".
//   ReadInto(value, pod->meta, [&](std::string_view key, JsonValue& field) -> Status { ... });
Status ReadInto(JsonValue& value, ObjectMeta& meta, const FieldHandler& field);

}  // namespace tessera::kube
