#include "kube/objects/list.h"

#include <array>
#include <optional>
#include <utility>

#include "base/plain_text.h"

namespace tessera::kube {
namespace {

using Type = WatchEvent::Type;

constexpr std::array<std::pair<std::string_view, Type>, 5> kTypes = {{
    {"ADDED", Type::kAdded},
    {"MODIFIED", Type::kModified},
    {"DELETED", Type::kDeleted},
    {"BOOKMARK", Type::kBookmark},
    {"ERROR", Type::kError},
}};

std::optional<Type> TypeOf(std::string_view text) {
  for (const auto& [name, type] : kTypes) {
    if (name == text) return type;
  }
  return std::nullopt;
}

Status ReadListMeta(JsonValue& value, ObjectList& list) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "resourceVersion") return Into(field.String(), list.resource_version);
    if (key == "continue") return Into(field.String(), list.next);
    return {};
  });
}

Result<ObjectPtr> ReadItem(JsonValue& value, const ObjectReader& reader) {
  Result<ObjectPtr> object = reader(value);
  if (!object) return object;
  if ((*object)->meta.name.empty()) return FailField("an object without a name");
  return object;
}

Status ReadEventObject(JsonValue& value, const ObjectReader& reader, WatchEvent& event) {
  if (event.type == Type::kError) return Into(ReadStatus(value), event.status);
  if (event.type == Type::kBookmark) return Into(ReadObjectMeta(value), event.object);
  return Into(ReadItem(value, reader), event.object);
}

}  // namespace

Result<ObjectList> ReadList(std::string& text, const ObjectReader& reader) {
  ObjectList list;
  const Status done = ReadJson(text, [&](JsonValue& root) {
    return root.Object([&](std::string_view key, JsonValue& field) -> Status {
      if (key == "metadata") return ReadListMeta(field, list);
      if (key != "items") return {};
      return field.Array([&](JsonValue& element) -> Status {
        return Into(ReadItem(element, reader), list.items.emplace_back());
      });
    });
  });
  if (!done) return Fail(done.error());
  if (list.resource_version.empty()) {
    return Fail(Code::kDataLoss, "metadata.resourceVersion: missing in a list");
  }
  return list;
}

bool EndsInitialEvents(const WatchEvent& event) {
  if (event.type != Type::kBookmark) return false;
  const std::string* value = Find(event.object->meta.annotations, kInitialEventsEnd);
  return value && *value == "true";
}

Result<WatchEvent> ReadWatchLine(std::string& line, const ObjectReader& reader) {
  WatchEvent event;
  bool known = false, read = false;
  std::string early;  // the object, where it stands before its type
  const Status done = ReadJson(line, [&](JsonValue& root) {
    return root.Object([&](std::string_view key, JsonValue& field) -> Status {
      if (key == "type") {
        const Result<std::string> text = field.String();
        if (!text) return Fail(text.error());
        const std::optional<Type> type = TypeOf(*text);
        if (!type) return FailField("'" + base::Shown(*text) + "' is not known");
        if (known) return FailField("given twice");
        event.type = *type;
        known = true;
        return {};
      }
      if (key != "object") return {};
      if (read || !early.empty()) return FailField("given twice");
      if (!known) return Into(field.Raw(), early);
      read = true;
      return ReadEventObject(field, reader, event);
    });
  });
  if (!done) return Fail(done.error());
  if (!known) return Fail(Code::kDataLoss, "type: missing in an event");
  if (!early.empty()) {
    const Status later =
        ReadJson(early, [&](JsonValue& root) { return ReadEventObject(root, reader, event); });
    if (!later) return FailIn("object", later.error());
    read = true;
  }
  if (!read) return Fail(Code::kDataLoss, "object: missing in an event");
  if (event.type != Type::kError && event.object->meta.resource_version.empty()) {
    return Fail(Code::kDataLoss, "object.metadata.resourceVersion: missing in an event");
  }
  return event;
}

}  // namespace tessera::kube
