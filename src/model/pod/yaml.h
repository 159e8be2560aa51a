// YAML of strangers, read with suspicion. The only header beside pod.cc that knows the YAML
// library.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::model {

// All documents of `text`. kInvalidArgument for broken text, a key that stands twice in one map,
// keys that are no plain text, and for documents of more than kMaxYamlNodes nodes or kMaxYamlDepth
// levels (aliases counted each time they are used).
Result<std::vector<YAML::Node>> LoadYaml(std::string_view text);

inline constexpr int kMaxYamlNodes = 100'000;
inline constexpr int kMaxYamlDepth = 64;

}  // namespace tessera::model
