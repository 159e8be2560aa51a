// Boost.JSON for what this library builds and for small answers. Large lists and watch events go
// through objects/, which reads bytes straight into structs. Included by .cc files only: it costs a
// second of compile time.
#pragma once

#include <boost/json.hpp>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::kube {

// kDataLoss for what is no JSON, is nested more than 64 deep, or has something behind it.
Result<boost::json::value> ParseJson(std::string_view text);

// The value at a path of keys; nullptr where a key is missing or something on the way is no object.
const boost::json::value* At(const boost::json::value& root,
                             std::initializer_list<std::string_view> path);

// The same as text: "" where it is missing or no string.
std::string StringAt(const boost::json::value& root, std::initializer_list<std::string_view> path);

}  // namespace tessera::kube
