#include "model/wire/pod_state.h"

#include <algorithm>

#include "contract/resources.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

constexpr std::size_t kMaxLabelBytes = 63;
constexpr std::size_t kMaxNodeNameBytes = 253;
constexpr char kLegalSeconds[] = "whole seconds since 1970, 0 to 253402300799";

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

Result<BindPhase> ReadBindPhase(std::string_view value) {
  for (const BindPhase phase : {BindPhase::kAllocating, BindPhase::kSuccess, BindPhase::kFailed}) {
    if (value == ToString(phase)) return phase;
  }
  return NotLegal(contract::kAnnotationBindPhase, value, "allocating, success or failed");
}

const char* ToString(BindPhase phase) {
  switch (phase) {
    case BindPhase::kAllocating:
      return "allocating";
    case BindPhase::kSuccess:
      return "success";
    case BindPhase::kFailed:
      return "failed";
  }
  return "failed";
}

Result<std::int64_t> ReadUnixSeconds(std::string_view annotation, std::string_view value) {
  const auto seconds = WholeNumber(value, 0, kMaxUnixSeconds);
  if (!seconds) return NotLegal(annotation, value, kLegalSeconds);
  return *seconds;
}

Result<std::string> WriteUnixSeconds(std::string_view annotation, std::int64_t seconds) {
  std::string value = std::to_string(seconds);
  if (seconds < 0 || seconds > kMaxUnixSeconds) return NotLegal(annotation, value, kLegalSeconds);
  return value;
}

Result<std::string> ReadNodeName(std::string_view value) {
  const bool legal = !value.empty() && value.size() <= kMaxNodeNameBytes &&
                     IsLetterOrDigit(value.front()) && IsLetterOrDigit(value.back()) &&
                     std::all_of(value.begin(), value.end(),
                                 [](char c) { return IsLetterOrDigit(c) || c == '-' || c == '.'; });
  if (!legal) {
    return NotLegal(contract::kAnnotationNode, value,
                    "the name of a node, 1 to 253 of a-z 0-9 - and .");
  }
  return std::string(value);
}

bool FitsLabel(std::string_view node_name) { return node_name.size() <= kMaxLabelBytes; }

}  // namespace tessera::model::wire
