// Memory errors, retired pages, remapped rows. Counts since load and over the card's life are the
// same here.
#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

bool Known(nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter) {
  return error >= 0 && error < NVML_MEMORY_ERROR_TYPE_COUNT && counter >= 0 &&
         counter < NVML_ECC_COUNTER_TYPE_COUNT;
}

std::uint64_t Count(nvmlDevice_t device, nvmlMemoryErrorType_t error) {
  return error == NVML_MEMORY_ERROR_TYPE_CORRECTED ? State(device).ecc_corrected.load()
                                                   : State(device).ecc_uncorrected.load();
}

}  // namespace

nvmlReturn_t DeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current,
                              nvmlEnableState_t* pending) {
  if (current == nullptr || pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  nvmlEnableState_t pending;
  return DeviceGetEccMode(device, mode, &pending);
}

nvmlReturn_t DeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error,
                                     nvmlEccCounterType_t counter, unsigned long long* count) {
  if (count == nullptr || !Known(error, counter)) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *count = Count(device, error);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error,
                                        nvmlEccCounterType_t counter,
                                        nvmlEccErrorCounts_t* counts) {
  if (counts == nullptr || !Known(error, counter)) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *counts = {0, 0, Count(device, error), 0};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error,
                                         nvmlEccCounterType_t counter,
                                         nvmlMemoryLocation_t location, unsigned long long* count) {
  if (count == nullptr || !Known(error, counter) || location < 0 ||
      location >= NVML_MEMORY_LOCATION_COUNT) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *count = location == NVML_MEMORY_LOCATION_DRAM ? Count(device, error) : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t) {
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  State(device).ecc_corrected.store(0);
  State(device).ecc_uncorrected.store(0);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                   unsigned int* count, unsigned long long*) {
  if (count == nullptr || cause < 0 || cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                      unsigned int* count, unsigned long long* addresses,
                                      unsigned long long*) {
  return DeviceGetRetiredPages(device, cause, count, addresses);
}

nvmlReturn_t DeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t* pending) {
  if (pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *pending = NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrected,
                                   unsigned int* uncorrected, unsigned int* pending,
                                   unsigned int* failed) {
  if (corrected == nullptr || uncorrected == nullptr || pending == nullptr || failed == nullptr) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (Spec(device).cc_major < 8 || Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *corrected = *uncorrected = *pending = *failed = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                           nvmlRowRemapperHistogramValues_t* values) {
  if (values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).cc_major < 8 || Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  *values = {640, 0, 0, 0, 0};  // banks of an A100, every spare row left
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
