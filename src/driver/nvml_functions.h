// The functions of libnvidia-ml.so.1 that Tessera calls, found at run time.
#pragma once

#include <nvml.h>

#include <string>

#include "base/result.h"
#include "driver/memory_limits_abi.h"

namespace tessera::driver {

// A null member means that this driver does not have the function; those of Load's required list
// never are.
struct NvmlFunctions {
  std::string library;  // path that the loader found

  nvmlReturn_t (*init)();
  const char* (*error_string)(nvmlReturn_t);
  nvmlReturn_t (*driver_version)(char*, unsigned);
  nvmlReturn_t (*cuda_version)(int*);
  nvmlReturn_t (*count)(unsigned*);
  nvmlReturn_t (*handle_by_index)(unsigned, nvmlDevice_t*);
  nvmlReturn_t (*uuid)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*name)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*pci)(nvmlDevice_t, nvmlPciInfo_t*);
  nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t*);
  nvmlReturn_t (*memory_v2)(nvmlDevice_t, nvmlMemory_v2_t*);
  nvmlReturn_t (*compute_capability)(nvmlDevice_t, int*, int*);
  nvmlReturn_t (*core_count)(nvmlDevice_t, unsigned*);
  nvmlReturn_t (*mig_mode)(nvmlDevice_t, unsigned*, unsigned*);
  nvmlReturn_t (*mig_count)(nvmlDevice_t, unsigned*);
  nvmlReturn_t (*mig_handle)(nvmlDevice_t, unsigned, nvmlDevice_t*);
  nvmlReturn_t (*utilization)(nvmlDevice_t, nvmlUtilization_t*);
  nvmlReturn_t (*compute_processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
  nvmlReturn_t (*graphics_processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
  nvmlReturn_t (*mps_processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
  nvmlReturn_t (*set_memory_limits)(nvmlDevice_t, const NvmlSetMemoryLimits*);
  nvmlReturn_t (*get_memory_limits)(nvmlDevice_t, NvmlGetMemoryLimits*);
};

// Loads the library (never unloaded) and finds the functions; does not call any. kUnavailable with
// the loader's own words.
Result<NvmlFunctions> LoadNvmlFunctions(const std::string& library);

}  // namespace tessera::driver
