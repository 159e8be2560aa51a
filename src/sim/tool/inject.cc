#include "sim/tool/inject.h"

#include <cuda.h>
#include <nvml.h>

#include <charconv>
#include <string_view>

namespace tessera::sim {
namespace {

struct Named {
  std::string_view name;
  std::int64_t value;
};

// The results that tests and people want; any other goes by its number.
constexpr Named kCudaResults[] = {
    {"INVALID_VALUE", CUDA_ERROR_INVALID_VALUE},
    {"OUT_OF_MEMORY", CUDA_ERROR_OUT_OF_MEMORY},
    {"NOT_INITIALIZED", CUDA_ERROR_NOT_INITIALIZED},
    {"NO_DEVICE", CUDA_ERROR_NO_DEVICE},
    {"INVALID_DEVICE", CUDA_ERROR_INVALID_DEVICE},
    {"DEVICE_UNAVAILABLE", CUDA_ERROR_DEVICE_UNAVAILABLE},
    {"INVALID_CONTEXT", CUDA_ERROR_INVALID_CONTEXT},
    {"ECC_UNCORRECTABLE", CUDA_ERROR_ECC_UNCORRECTABLE},
    {"OPERATING_SYSTEM", CUDA_ERROR_OPERATING_SYSTEM},
    {"INVALID_HANDLE", CUDA_ERROR_INVALID_HANDLE},
    {"NOT_FOUND", CUDA_ERROR_NOT_FOUND},
    {"NOT_READY", CUDA_ERROR_NOT_READY},
    {"ILLEGAL_ADDRESS", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"LAUNCH_OUT_OF_RESOURCES", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
    {"LAUNCH_TIMEOUT", CUDA_ERROR_LAUNCH_TIMEOUT},
    {"LAUNCH_FAILED", CUDA_ERROR_LAUNCH_FAILED},
    {"NOT_PERMITTED", CUDA_ERROR_NOT_PERMITTED},
    {"NOT_SUPPORTED", CUDA_ERROR_NOT_SUPPORTED},
    {"SYSTEM_NOT_READY", CUDA_ERROR_SYSTEM_NOT_READY},
    {"UNKNOWN", CUDA_ERROR_UNKNOWN},
};

constexpr Named kNvmlResults[] = {
    {"UNINITIALIZED", NVML_ERROR_UNINITIALIZED},
    {"INVALID_ARGUMENT", NVML_ERROR_INVALID_ARGUMENT},
    {"NOT_SUPPORTED", NVML_ERROR_NOT_SUPPORTED},
    {"NO_PERMISSION", NVML_ERROR_NO_PERMISSION},
    {"NOT_FOUND", NVML_ERROR_NOT_FOUND},
    {"DRIVER_NOT_LOADED", NVML_ERROR_DRIVER_NOT_LOADED},
    {"TIMEOUT", NVML_ERROR_TIMEOUT},
    {"IRQ_ISSUE", NVML_ERROR_IRQ_ISSUE},
    {"FUNCTION_NOT_FOUND", NVML_ERROR_FUNCTION_NOT_FOUND},
    {"GPU_IS_LOST", NVML_ERROR_GPU_IS_LOST},
    {"RESET_REQUIRED", NVML_ERROR_RESET_REQUIRED},
    {"OPERATING_SYSTEM", NVML_ERROR_OPERATING_SYSTEM},
    {"LIB_RM_VERSION_MISMATCH", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
    {"IN_USE", NVML_ERROR_IN_USE},
    {"MEMORY", NVML_ERROR_MEMORY},
    {"UNKNOWN", NVML_ERROR_UNKNOWN},
};

constexpr Named kThrottle[] = {
    {"none", 0},
    {"power", nvmlClocksEventReasonSwPowerCap},
    {"thermal", nvmlClocksEventReasonSwThermalSlowdown},
    {"hw-slowdown", nvmlClocksThrottleReasonHwSlowdown},
    {"hw-thermal", nvmlClocksThrottleReasonHwThermalSlowdown},
    {"power-brake", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
};

template <std::size_t N>
std::string Legal(const Named (&table)[N]) {
  std::string text;
  for (const Named& named : table) text += (text.empty() ? "" : ", ") + std::string(named.name);
  return text;
}

template <std::size_t N>
const Named* Find(const Named (&table)[N], std::string_view name) {
  for (const Named& named : table) {
    if (named.name == name) return &named;
  }
  return nullptr;
}

}  // namespace

Result<int> ParseResult(const std::string& call, const std::string& text) {
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec == std::errc{} && read.ptr == text.data() + text.size() && number >= 0 &&
      number <= 9999)
    return number;
  const bool nvml = call.starts_with("nvml");
  std::string_view name = text;
  const std::string_view prefix = nvml ? "NVML_ERROR_" : "CUDA_ERROR_";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const Named* named = nvml ? Find(kNvmlResults, name) : Find(kCudaResults, name);
  if (named != nullptr) return static_cast<int>(named->value);
  return Fail(Code::kInvalidArgument, "--result '" + text +
                                          "' is not legal: a number from 0 to 9999, or " +
                                          (nvml ? Legal(kNvmlResults) : Legal(kCudaResults)));
}

Result<std::uint64_t> ParseThrottle(const std::string& text) {
  std::uint64_t sum = 0;
  std::string_view rest = text;
  do {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const Named* named = Find(kThrottle, name);
    if (named == nullptr) {
      return Fail(Code::kInvalidArgument,
                  "throttle '" + std::string(name) + "' is not legal: " + Legal(kThrottle));
    }
    sum |= static_cast<std::uint64_t>(named->value);
  } while (!rest.empty());
  return sum;
}

}  // namespace tessera::sim
