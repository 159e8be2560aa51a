// MIG devices as the node describes them. They are fixed: making and destroying instances is not
// simulated.
#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

nvmlReturn_t Put(unsigned int value, unsigned int* to) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t DeviceGetMigMode(nvmlDevice_t device, unsigned int* current, unsigned int* pending) {
  if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).mig_capable == 0) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = Spec(device).mig_enabled;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* is_mig) {
  return Put(Mig(device) != nullptr ? 1 : 0, is_mig);
}

nvmlReturn_t DeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return Put(Spec(device).mig_capable != 0 ? kMaxMigDevices : 0, count);
}

nvmlReturn_t DeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                             nvmlDevice_t* mig) {
  if (mig == nullptr || index >= kMaxMigDevices) return NVML_ERROR_INVALID_ARGUMENT;
  const CardSpec& spec = Spec(device);
  if (spec.mig_enabled == 0) return NVML_ERROR_NOT_SUPPORTED;
  if (index >= spec.mig_count) return NVML_ERROR_NOT_FOUND;
  *mig = HandleOf(DeviceOf(device)->card, static_cast<int>(index));
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t* device) {
  if (device == nullptr || Mig(mig) == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *device = HandleOf(DeviceOf(mig)->card);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int* id) {
  return Mig(device) == nullptr ? NVML_ERROR_NOT_SUPPORTED : Put(Mig(device)->gpu_instance, id);
}

nvmlReturn_t DeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int* id) {
  return Mig(device) == nullptr ? NVML_ERROR_NOT_SUPPORTED : Put(Mig(device)->compute_instance, id);
}

nvmlReturn_t DeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  if (attributes == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const MigSpec* mig = Mig(device);
  if (mig == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  *attributes = {};
  attributes->multiprocessorCount = mig->sm_count;
  attributes->sharedCopyEngineCount = mig->gpu_slices;
  attributes->gpuInstanceSliceCount = mig->gpu_slices;
  attributes->computeInstanceSliceCount = mig->compute_slices;
  attributes->memorySizeMB = mig->memory_bytes >> 20;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return DeviceGetAttributes_v2(device, attributes);
}

}  // namespace tessera::sim::nvml
