// What Aliyun's GPUShare wrote on a pod: the card that its extender chose, in the units of that
// installation (GiB unless its plugin runs with --memory-unit=MiB). Read only: nobody here writes
// it.
//
// Errors: kInvalidArgument, naming annotation, value and what is legal. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace tessera::model::wire {

struct GpuShare {
  std::uint32_t card_index = 0;     // as NVML counts on that node
  std::uint32_t pod_units = 0;      // of memory, all containers together; at least 1
  std::uint32_t card_units = 0;     // of the whole card; at least pod_units
  bool assigned = false;            // the plugin has handed it out
  std::int64_t assume_time_ns = 0;  // since 1970
  friend bool operator==(const GpuShare&, const GpuShare&) = default;
};

// Nothing for a pod that carries none of the names. One of them without the others is an error: the
// extender writes all of them at once.
Result<std::optional<GpuShare>> ReadGpuShare(
    std::span<const std::pair<std::string, std::string>> annotations);

}  // namespace tessera::model::wire
