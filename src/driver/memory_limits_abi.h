// The driver's memory limit per cgroup as its library takes it. Newer than the pinned nvml.h, so
// the two structures stand here as NVIDIA's NVML reference gives them (nvmlSetMemoryLimits_v1_t,
// nvmlGetMemoryLimits_v1_t; driver R615): resolved with dlsym, absent in older drivers.
#pragma once

namespace tessera::driver {

inline constexpr char kSetMemoryLimitsSymbol[] = "nvmlDeviceSetMemoryLimits_v1";
inline constexpr char kGetMemoryLimitsSymbol[] = "nvmlDeviceGetMemoryLimits_v1";

struct NvmlSetMemoryLimits {
  const char* name_space;         // full path of the cgroup's directory
  unsigned long long soft_limit;  // bytes that stay guaranteed under pressure; 0 = none
  unsigned long long hard_limit;  // bytes
};

struct NvmlGetMemoryLimits {
  const char* name_space;
  unsigned long long soft_limit;
  unsigned long long hard_limit;
  unsigned long long current_used;
};

}  // namespace tessera::driver
