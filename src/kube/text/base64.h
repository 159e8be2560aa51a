// Base64 as kubeconfigs and Secrets hold it: RFC 4648 alphabet, padding required, white space
// skipped.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::kube {

Result<std::string> DecodeBase64(std::string_view text);  // kInvalidArgument
std::string EncodeBase64(std::string_view bytes);

}  // namespace tessera::kube
