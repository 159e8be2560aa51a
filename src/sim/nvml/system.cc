// Versions, process names, confidential computing (none).
#include <stdio.h>
#include <string.h>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {

nvmlReturn_t SystemGetDriverVersion(char* version, unsigned int length) {
  return CopyText(Node().driver_version, version, length);
}

nvmlReturn_t SystemGetNVMLVersion(char* version, unsigned int length) {
  // The library's version is the driver's behind the CUDA major version, "13.580.95.05".
  char text[48];
  snprintf(text, sizeof text, "%u.%s", Node().driver_version_cuda / 1000, Node().driver_version);
  return CopyText(text, version, length);
}

nvmlReturn_t SystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = static_cast<int>(Node().driver_version_cuda);
  return NVML_SUCCESS;
}

nvmlReturn_t SystemGetCudaDriverVersion(int* version) {
  return SystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t SystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* info, unsigned int length) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlSystemDriverBranchInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  char text[40];
  snprintf(text, sizeof text, "r%.3s_00", Node().driver_version);
  return CopyText(text, info->branch, length < sizeof info->branch ? length : sizeof info->branch);
}

nvmlReturn_t SystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  char path[40];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return NVML_ERROR_NOT_FOUND;
  char text[1024];
  const std::size_t size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[size] = 0;  // the first argument ends at its own zero
  snprintf(name, length, "%s", text);
  return NVML_SUCCESS;
}

nvmlReturn_t SystemGetHicVersion(unsigned int* count, nvmlHwbcEntry_t*) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t UnitGetCount(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t GetExcludedDeviceCount(unsigned int* count) { return UnitGetCount(count); }

nvmlReturn_t SystemGetConfComputeState(nvmlConfComputeSystemState_t* state) {
  if (state == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *state = {};
  return NVML_SUCCESS;
}

nvmlReturn_t SystemGetConfComputeSettings(nvmlSystemConfComputeSettings_t* settings) {
  if (settings == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (settings->version != nvmlSystemConfComputeSettings_v1)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const unsigned int version = settings->version;
  *settings = {};
  settings->version = version;
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
