// YAML of strangers (manifests, kubeconfigs), read with suspicion. The only header that knows the
// header that knows the YAML library; its own target, so that who needs no YAML links none.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::base {

// All documents of `text`. kInvalidArgument for broken text, a key that stands twice in one map,
// keys that are no plain text, more than kMaxYamlDocuments documents, and for documents of more
// than kMaxYamlNodes nodes or kMaxYamlDepth levels (aliases counted each time they are used).
Result<std::vector<YAML::Node>> LoadYaml(std::string_view text);

inline constexpr std::size_t kMaxYamlDocuments = 1'000;
inline constexpr int kMaxYamlNodes = 100'000;
inline constexpr int kMaxYamlDepth = 64;

}  // namespace tessera::base
