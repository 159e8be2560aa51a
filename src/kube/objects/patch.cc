#include "kube/objects/patch.h"

#include <utility>

#include "kube/text/json.h"

namespace tessera::kube {
namespace {

using StringChanges = std::map<std::string, std::optional<std::string>>;

boost::json::object ChangesOf(const StringChanges& changes) {
  boost::json::object object;
  for (const auto& [key, value] : changes) {
    object[key] = value ? boost::json::value(*value) : boost::json::value(nullptr);
  }
  return object;
}

}  // namespace

std::string QuoteJson(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

std::string JsonPointer(std::initializer_list<std::string_view> path) {
  std::string pointer;
  for (std::string_view key : path) {
    pointer += '/';
    for (char c : key) {
      if (c == '~') {
        pointer += "~0";
      } else if (c == '/') {
        pointer += "~1";
      } else {
        pointer += c;
      }
    }
  }
  return pointer;
}

void JsonPatch::Append(std::string_view operation, std::string_view pointer,
                       const boost::json::value* value) {
  if (!operations_.empty()) operations_ += ',';
  operations_.append(R"({"op":")").append(operation).append(R"(","path":)");
  operations_ += QuoteJson(pointer);
  if (value) operations_.append(",\"value\":").append(boost::json::serialize(*value));
  operations_ += '}';
}

JsonPatch& JsonPatch::Test(std::string_view pointer, const boost::json::value& value) {
  Append("test", pointer, &value);
  return *this;
}

JsonPatch& JsonPatch::Add(std::string_view pointer, const boost::json::value& value) {
  Append("add", pointer, &value);
  return *this;
}

JsonPatch& JsonPatch::Replace(std::string_view pointer, const boost::json::value& value) {
  Append("replace", pointer, &value);
  return *this;
}

JsonPatch& JsonPatch::Remove(std::string_view pointer) {
  Append("remove", pointer, nullptr);
  return *this;
}

std::string MergePatch(const MetaChange& change) {
  boost::json::object meta;
  if (!change.uid.empty()) meta["uid"] = change.uid;
  if (!change.resource_version.empty()) meta["resourceVersion"] = change.resource_version;
  if (!change.labels.empty()) meta["labels"] = ChangesOf(change.labels);
  if (!change.annotations.empty()) meta["annotations"] = ChangesOf(change.annotations);
  return boost::json::serialize(boost::json::object{{"metadata", std::move(meta)}});
}

Result<std::string> ApplyBody(const Resource& resource, std::string_view kind,
                              std::string_view space, std::string_view name,
                              std::string_view fields) {
  Result<boost::json::value> body = ParseJson(fields.empty() ? "{}" : fields);
  boost::json::object* object = body ? body->if_object() : nullptr;
  if (!object) return Fail(Code::kInvalidArgument, "fields to apply: not a JSON object");
  (*object)["apiVersion"] = ApiVersion(resource);
  (*object)["kind"] = kind;
  boost::json::value& meta = (*object)["metadata"];
  if (!meta.is_object()) meta = boost::json::object();
  meta.as_object()["name"] = name;
  if (!space.empty()) meta.as_object()["namespace"] = space;
  return boost::json::serialize(*body);
}

}  // namespace tessera::kube
