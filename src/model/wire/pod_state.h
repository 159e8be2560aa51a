// Where a pod stands between scheduler and node: hami.io/bind-phase, bind-time, vgpu-time and
// vgpu-node.
//
// Errors: kInvalidArgument, naming annotation, value and what is legal. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::model::wire {

enum class BindPhase {
  kAllocating,  // bound, and not every container was given its cards yet
  kSuccess,
  kFailed,
};

Result<BindPhase> ReadBindPhase(std::string_view value);
const char* ToString(BindPhase phase);

// Whole seconds since 1970, up to the year 9999, as hami.io/bind-time and vgpu-time hold them.
Result<std::int64_t> ReadUnixSeconds(std::string_view annotation, std::string_view value);
Result<std::string> WriteUnixSeconds(std::string_view annotation, std::int64_t seconds);

// The name of a Kubernetes node: 1 to 253 of a-z 0-9 - and . that begins and ends with a letter or
// digit.
Result<std::string> ReadNodeName(std::string_view value);

// Whether the same value may stand in the label hami.io/vgpu-node: the API server refuses a pod
// with a longer one.
bool FitsLabel(std::string_view node_name);

}  // namespace tessera::model::wire
