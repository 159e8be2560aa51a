#include "kube/text/json.h"

namespace tessera::kube {

Result<boost::json::value> ParseJson(std::string_view text) {
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = 64;
  boost::json::value value = boost::json::parse(text, error, {}, options);
  if (error) return Fail(Code::kDataLoss, "not JSON: " + error.message());
  return value;
}

const boost::json::value* At(const boost::json::value& root,
                             std::initializer_list<std::string_view> path) {
  const boost::json::value* at = &root;
  for (std::string_view key : path) {
    const boost::json::object* object = at->if_object();
    at = object ? object->if_contains(key) : nullptr;
    if (!at) return nullptr;
  }
  return at;
}

std::string StringAt(const boost::json::value& root, std::initializer_list<std::string_view> path) {
  const boost::json::value* at = At(root, path);
  const boost::json::string* text = at ? at->if_string() : nullptr;
  return text ? std::string(text->data(), text->size()) : std::string();
}

}  // namespace tessera::kube
