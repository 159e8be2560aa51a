// Reads JSON bytes straight into structs, once from front to back, without building a tree.
//
//   Pod pod;
//   Status done = ReadJson(text, [&](JsonValue& root) {
//     return root.Object([&](std::string_view key, JsonValue& value) -> Status {
//       if (key == "spec") return ReadSpec(value, pod);
//       return {};  // a field that nobody asked for: skipped
//     });
//   });
//
// Errors are kDataLoss and name the field: "spec.containers[1].name: a string is needed". Fields
// that are skipped are not validated beyond their brackets; what is read is unescaped. A null is
// taken as a missing field by all readers, as Kubernetes does. What a handler itself finds wrong it
// says with FailField.
//
// Thread safety: any number of threads, each with its own text. A JsonValue lives until the handler
// that got it returns, and is read at most once; a key lives as long as the text is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tessera::kube {

class JsonValue;
using FieldHandler = std::function<Status(std::string_view key, JsonValue& value)>;
using ElementHandler = std::function<Status(JsonValue& element)>;

class JsonValue {
 public:
  Result<std::string> String();              // null: ""
  Result<std::int64_t> Integer();            // null: 0
  Result<bool> Boolean();                    // null: false
  Result<std::string> Text();                // a string, or a number as it is written (IntOrString)
  Result<std::string> Raw();                 // its JSON
  Status Object(const FieldHandler& field);  // null: no field
  Status Array(const ElementHandler& element);  // null: no element

  // What is behind it; known to reader.cc only.
  struct Source;
  explicit JsonValue(Source& source) : source_(source) {}

 private:
  Source& source_;
};

// `text` gets room behind its end (simdjson reads past it), its bytes stay. kDataLoss also for text
// that is nested too deep, is no UTF-8, or has something behind the value.
Status ReadJson(std::string& text, const ElementHandler& root);

// "field: what", for handlers: the field is put in front by those above.
tl::unexpected<Error> FailField(std::string_view what);

// For the common shapes, each into a variable: return Into(value.String(), meta.name);
template <typename T>
Status Into(Result<T> read, T& variable) {
  if (!read) return Fail(read.error());
  variable = std::move(*read);
  return {};
}

Result<std::vector<std::string>> ReadStrings(JsonValue& value);
// A map of strings, in the order of the text.
Result<std::vector<std::pair<std::string, std::string>>> ReadStringMap(JsonValue& value);

}  // namespace tessera::kube
