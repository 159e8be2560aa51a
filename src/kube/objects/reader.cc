#include "kube/objects/reader.h"

#include <simdjson.h>

#include <optional>
#include <utility>

#include "base/plain_text.h"

namespace tessera::kube {
namespace {

namespace od = simdjson::ondemand;

// A field in front of what is below it: "a" + "b: why" = "a.b: why", "a" + "[1]: why" = "a[1]:
// why". Errors of this file are marked by a leading field or ": ".
tl::unexpected<Error> Below(std::string_view field, const Error& error) {
  const std::string& text = error.message;
  const bool joined = text.starts_with('[') || text.starts_with(": ");
  return Fail(error.code, base::Shown(field) + (joined ? "" : ".") + text);
}

tl::unexpected<Error> Broken(simdjson::error_code error) {
  return Fail(Code::kDataLoss, std::string(": broken JSON: ") + simdjson::error_message(error));
}

tl::unexpected<Error> Needed(const char* what) {
  return Fail(Code::kDataLoss, std::string(": ") + what + " is needed");
}

bool WrongType(simdjson::error_code error) {
  return error == simdjson::INCORRECT_TYPE || error == simdjson::NUMBER_ERROR ||
         error == simdjson::NUMBER_OUT_OF_RANGE;
}

}  // namespace

// A document for the root, a value below it: simdjson has two types for what is one thing here.
struct JsonValue::Source {
  od::document* document = nullptr;
  std::optional<od::value> value;

  template <typename F>
  auto Visit(F&& f) {
    return value ? f(*value) : f(*document);
  }
};

namespace {

// kNull, or the value read by `get`.
template <typename T, typename Get>
Result<T> Scalar(JsonValue::Source& source, const char* what, Get get) {
  return source.Visit([&](auto& from) -> Result<T> {
    bool null = false;
    if (const auto error = from.is_null().get(null); !error && null) return T();
    auto read = get(from);
    if (const auto error = read.error()) {
      return WrongType(error) ? Result<T>(Needed(what)) : Result<T>(Broken(error));
    }
    return T(read.value_unsafe());
  });
}

}  // namespace

Result<std::string> JsonValue::String() {
  return Scalar<std::string>(source_, "a string", [](auto& from) { return from.get_string(); });
}

Result<std::int64_t> JsonValue::Integer() {
  return Scalar<std::int64_t>(source_, "a whole number",
                              [](auto& from) { return from.get_int64(); });
}

Result<bool> JsonValue::Boolean() {
  return Scalar<bool>(source_, "true or false", [](auto& from) { return from.get_bool(); });
}

Result<std::string> JsonValue::Text() {
  od::json_type type;
  if (const auto error = source_.Visit([](auto& from) { return from.type(); }).get(type)) {
    return Broken(error);
  }
  if (type != od::json_type::number) return String();
  std::string_view token;
  const auto error =
      source_
          .Visit([](auto& from) {
            return simdjson::simdjson_result<std::string_view>(from.raw_json_token());
          })
          .get(token);
  if (error) return Broken(error);
  const std::size_t end = token.find_last_not_of(" \t\r\n");
  return std::string(token.substr(0, end + 1));
}

Result<std::string> JsonValue::Raw() {
  return source_.Visit([](auto& from) -> Result<std::string> {
    std::string_view raw;
    if (const auto error = simdjson::to_json_string(from).get(raw)) return Broken(error);
    return std::string(raw);
  });
}

Status JsonValue::Object(const FieldHandler& handler) {
  bool null = false;
  const auto is_null = source_.Visit([](auto& from) { return from.is_null(); }).get(null);
  if (!is_null && null) return {};
  od::object object;
  if (const auto error = source_.Visit([](auto& from) { return from.get_object(); }).get(object)) {
    return WrongType(error) ? Needed("an object") : Broken(error);
  }
  for (auto item : object) {
    od::field field;
    if (const auto error = std::move(item).get(field)) return Broken(error);
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) return Broken(error);
    Source below{nullptr, field.value()};
    JsonValue value(below);
    if (const Status done = handler(key, value); !done) return Below(key, done.error());
  }
  return {};
}

Status JsonValue::Array(const ElementHandler& handler) {
  bool null = false;
  const auto is_null = source_.Visit([](auto& from) { return from.is_null(); }).get(null);
  if (!is_null && null) return {};
  od::array array;
  if (const auto error = source_.Visit([](auto& from) { return from.get_array(); }).get(array)) {
    return WrongType(error) ? Needed("an array") : Broken(error);
  }
  std::size_t index = 0;
  for (auto item : array) {
    od::value element;
    if (const auto error = item.get(element)) return Broken(error);
    Source below{nullptr, element};
    JsonValue value(below);
    if (const Status done = handler(value); !done) {
      return Below("[" + std::to_string(index) + "]", done.error());
    }
    ++index;
  }
  return {};
}

namespace {

// A parser's tables are many times as large as the text, so that only small ones are kept.
constexpr std::size_t kKeptCapacity = 1u << 20;

Status Parse(od::parser& parser, std::string& text, const ElementHandler& root) {
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  od::document document;
  if (const auto error = parser.iterate(text.data(), text.size(), text.capacity()).get(document)) {
    return Fail(Code::kDataLoss, std::string("broken JSON: ") + simdjson::error_message(error));
  }
  JsonValue::Source source{&document, std::nullopt};
  JsonValue value(source);
  if (const Status done = root(value); !done) {
    Error error = done.error();
    if (error.message.starts_with(": ")) error.message.erase(0, 2);
    return Fail(error);
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
    return Fail(Code::kDataLoss, "broken JSON: something behind its end");
  return {};
}

}  // namespace

Status ReadJson(std::string& text, const ElementHandler& root) {
  thread_local od::parser kept;
  thread_local bool busy = false;  // a handler may read another text
  if (busy || text.size() > kKeptCapacity) {
    od::parser parser;
    return Parse(parser, text, root);
  }
  busy = true;
  const Status done = Parse(kept, text, root);
  busy = false;
  return done;
}

tl::unexpected<Error> FailField(std::string_view what) {
  return Fail(Code::kDataLoss, ": " + std::string(what));
}

Result<std::vector<std::string>> ReadStrings(JsonValue& value) {
  std::vector<std::string> strings;
  const Status done = value.Array([&](JsonValue& element) -> Status {
    Result<std::string> text = element.String();
    if (!text) return Fail(text.error());
    strings.push_back(std::move(*text));
    return {};
  });
  if (!done) return Fail(done.error());
  return strings;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadStringMap(JsonValue& value) {
  std::vector<std::pair<std::string, std::string>> map;
  const Status done = value.Object([&](std::string_view key, JsonValue& field) -> Status {
    Result<std::string> text = field.String();
    if (!text) return Fail(text.error());
    map.emplace_back(key, std::move(*text));
    return {};
  });
  if (!done) return Fail(done.error());
  return map;
}

}  // namespace tessera::kube
