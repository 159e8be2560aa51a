// Times as the Kubernetes API writes them (RFC 3339): metav1.Time in seconds, metav1.MicroTime in
// microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::kube {

// Microseconds since 1970 of "2026-01-02T03:04:05[.123456789](Z|+01:00)"; kInvalidArgument for
// anything else and for years outside 1970 to 9999.
Result<std::int64_t> ParseTime(std::string_view text);

std::string FormatTime(std::int64_t seconds);            // 2026-01-02T03:04:05Z
std::string FormatMicroTime(std::int64_t microseconds);  // 2026-01-02T03:04:05.000000Z

}  // namespace tessera::kube
