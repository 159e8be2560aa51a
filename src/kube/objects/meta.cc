#include "kube/objects/meta.h"

#include <algorithm>

#include "kube/text/time.h"

namespace tessera::kube {
namespace {

using StringMap = std::vector<std::pair<std::string, std::string>>;

Status ReadTime(JsonValue& value, std::optional<std::int64_t>& micros) {
  const Result<std::string> text = value.String();
  if (!text) return Fail(text.error());
  if (text->empty()) return {};
  const Result<std::int64_t> time = ParseTime(*text);
  if (!time) return FailField(time.error().message);
  micros = *time;
  return {};
}

// The last of equal keys wins, as in Go.
Status ReadSorted(JsonValue& value, StringMap& map) {
  Result<StringMap> read = ReadStringMap(value);
  if (!read) return Fail(read.error());
  std::reverse(read->begin(), read->end());
  const auto key = [](const auto& pair) -> const std::string& { return pair.first; };
  std::ranges::stable_sort(*read, {}, key);
  const auto rest = std::ranges::unique(*read, {}, key);
  read->erase(rest.begin(), rest.end());
  map = std::move(*read);
  return {};
}

Status ReadOwner(JsonValue& value, OwnerReference& owner) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "apiVersion") return Into(field.String(), owner.api_version);
    if (key == "kind") return Into(field.String(), owner.kind);
    if (key == "name") return Into(field.String(), owner.name);
    if (key == "uid") return Into(field.String(), owner.uid);
    if (key == "controller") return Into(field.Boolean(), owner.controller);
    return {};
  });
}

Status ReadMetaField(std::string_view key, JsonValue& field, ObjectMeta& meta) {
  if (key == "name") return Into(field.String(), meta.name);
  if (key == "namespace") return Into(field.String(), meta.space);
  if (key == "uid") return Into(field.String(), meta.uid);
  if (key == "resourceVersion") return Into(field.String(), meta.resource_version);
  if (key == "generation") return Into(field.Integer(), meta.generation);
  if (key == "creationTimestamp") {
    std::optional<std::int64_t> time;
    const Status done = ReadTime(field, time);
    meta.created_micros = time.value_or(0);
    return done;
  }
  if (key == "deletionTimestamp") return ReadTime(field, meta.deleted_micros);
  if (key == "labels") return ReadSorted(field, meta.labels);
  if (key == "annotations") return ReadSorted(field, meta.annotations);
  if (key == "finalizers") return Into(ReadStrings(field), meta.finalizers);
  if (key == "ownerReferences") {
    return field.Array(
        [&](JsonValue& element) { return ReadOwner(element, meta.owners.emplace_back()); });
  }
  return {};
}

}  // namespace

std::string KeyOf(const ObjectMeta& meta) {
  return meta.space.empty() ? meta.name : meta.space + "/" + meta.name;
}

const std::string* Find(const StringMap& sorted, std::string_view key) {
  const auto at = std::ranges::lower_bound(
      sorted, key, {}, [](const auto& pair) { return std::string_view(pair.first); });
  return at != sorted.end() && at->first == key ? &at->second : nullptr;
}

Result<ObjectMeta> ReadMeta(JsonValue& value) {
  ObjectMeta meta;
  const Status done = value.Object(
      [&](std::string_view key, JsonValue& field) { return ReadMetaField(key, field, meta); });
  if (!done) return Fail(done.error());
  return meta;
}

Status ReadInto(JsonValue& value, ObjectMeta& meta, const FieldHandler& handler) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "metadata") return Into(ReadMeta(field), meta);
    return handler(key, field);
  });
}

Result<ObjectPtr> ReadObjectMeta(JsonValue& value) {
  auto object = std::make_shared<Object>();
  const Status done =
      ReadInto(value, object->meta, [](std::string_view, JsonValue&) -> Status { return {}; });
  if (!done) return Fail(done.error());
  return object;
}

}  // namespace tessera::kube
