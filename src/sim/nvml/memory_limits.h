// The driver's own memory limit per cgroup: NVML of driver R615 and later, not in the CUDA 13.0
// header. The layout is that of NVIDIA's Python bindings (nvidia-ml-py 13.615).
#pragma once

namespace tessera::sim::nvml {

inline constexpr unsigned long long kMemoryLimitMax =
    ~0ULL;  // NVML_DEVICE_MEMORY_LIMIT_MAX: no hard limit

struct SetMemoryLimits_v1 {
  const char* name_space;                     // full cgroup path
  unsigned long long soft_limit, hard_limit;  // bytes; 0 and kMemoryLimitMax clear
};

struct GetMemoryLimits_v1 {
  const char* name_space;
  unsigned long long soft_limit, hard_limit, current_used;
};

}  // namespace tessera::sim::nvml
