// Modes that can be read and, by root, set.
#include <unistd.h>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

nvmlReturn_t Put(nvmlEnableState_t value, nvmlEnableState_t* to) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t DeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return Put(State(device).persistence.load() != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED,
             mode);
}

nvmlReturn_t DeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  if (mode != NVML_FEATURE_DISABLED && mode != NVML_FEATURE_ENABLED)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (geteuid() != 0) return NVML_ERROR_NO_PERMISSION;
  State(device).persistence.store(mode);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = static_cast<nvmlComputeMode_t>(State(device).compute_mode.load());
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
  if (mode < 0 || mode >= NVML_COMPUTEMODE_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
    return NVML_ERROR_NOT_SUPPORTED;  // gone since CUDA 8
  if (geteuid() != 0) return NVML_ERROR_NO_PERMISSION;
  State(device).compute_mode.store(mode);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetDisplayMode(nvmlDevice_t, nvmlEnableState_t* display) {
  return Put(NVML_FEATURE_DISABLED, display);
}
nvmlReturn_t DeviceGetDisplayActive(nvmlDevice_t, nvmlEnableState_t* active) {
  return Put(NVML_FEATURE_DISABLED, active);
}

nvmlReturn_t DeviceGetAPIRestriction(nvmlDevice_t, nvmlRestrictedAPI_t type,
                                     nvmlEnableState_t* restricted) {
  if (type < 0 || type >= NVML_RESTRICTED_API_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  return Put(NVML_FEATURE_ENABLED, restricted);
}

nvmlReturn_t DeviceGetVirtualizationMode(nvmlDevice_t, nvmlGpuVirtualizationMode_t* mode) {
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int* enabled,
                                      unsigned int* by_default) {
  if (enabled == nullptr || by_default == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *enabled = *by_default = Spec(device).cc_major * 10 + Spec(device).cc_minor >= 75 ? 1 : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetGspFirmwareVersion(nvmlDevice_t, char* version) {
  return CopyText(Node().driver_version, version, sizeof(NodeState::driver_version));
}

nvmlReturn_t GpmQueryDeviceSupport(nvmlDevice_t, nvmlGpmSupport_t* support) {
  if (support == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  support->isSupportedDevice = 0;
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
