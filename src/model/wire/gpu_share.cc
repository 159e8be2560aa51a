#include "model/wire/gpu_share.h"

#include <algorithm>
#include <array>
#include <limits>

#include "contract/resources.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

constexpr char kLegalUnits[] = "whole units of memory, 1 to 2147483647";

enum Field { kIndex, kPod, kCard, kAssigned, kAssumeTime, kFields };

constexpr std::array<const char*, kFields> kNames = {
    contract::kGpuShareIndex, contract::kGpuSharePod, contract::kGpuShareCard,
    contract::kGpuShareAssigned, contract::kGpuShareAssumeTime};

}  // namespace

Result<std::optional<GpuShare>> ReadGpuShare(
    std::span<const std::pair<std::string, std::string>> annotations) {
  std::array<const std::string*, kFields> values{};
  for (const auto& [name, value] : annotations) {
    const auto* found = std::find(kNames.begin(), kNames.end(), name);
    if (found != kNames.end()) values[static_cast<std::size_t>(found - kNames.begin())] = &value;
  }
  if (std::count(values.begin(), values.end(), nullptr) == kFields) {
    return std::optional<GpuShare>();
  }
  for (std::size_t i = 0; i < kFields; ++i) {
    if (!values[i]) return NotLegal(kNames[i], "", "that it stands beside its siblings");
  }

  const auto index = WholeNumber(*values[kIndex], 0, kMaxCount);
  if (!index) return NotLegal(kNames[kIndex], *values[kIndex], kLegalCount);
  const auto card = WholeNumber(*values[kCard], 1, kMaxCount);
  if (!card) return NotLegal(kNames[kCard], *values[kCard], kLegalUnits);
  const auto pod = WholeNumber(*values[kPod], 1, kMaxCount);
  if (!pod) return NotLegal(kNames[kPod], *values[kPod], kLegalUnits);
  if (*pod > *card) {
    return NotLegal(kNames[kPod], *values[kPod],
                    "at most the card's " + std::to_string(*card) + " units");
  }
  const bool assigned = *values[kAssigned] == "true";
  if (!assigned && *values[kAssigned] != "false") {
    return NotLegal(kNames[kAssigned], *values[kAssigned], "true or false");
  }
  const auto time = WholeNumber(*values[kAssumeTime], 0, std::numeric_limits<std::int64_t>::max());
  if (!time) {
    return NotLegal(kNames[kAssumeTime], *values[kAssumeTime], "whole nanoseconds since 1970");
  }
  return GpuShare{static_cast<std::uint32_t>(*index), static_cast<std::uint32_t>(*pod),
                  static_cast<std::uint32_t>(*card), assigned, *time};
}

}  // namespace tessera::model::wire
