// A small libnvidia-ml.so.1 for the reader's own tests: three cards, of which the third is lost.
// TEST_NVML_HANG=1 makes card 1 hang for ever, =init the initialisation.
#include <nvml.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "driver/memory_limits_abi.h"

using namespace tessera::driver;

namespace {
constexpr unsigned long long kMiB = 1ull << 20;

bool Hangs(const char* what) {
  const char* hang = getenv("TEST_NVML_HANG");
  return hang != nullptr && strcmp(hang, what) == 0;
}
unsigned Index(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}
std::map<std::string, unsigned long long>& Limits() {
  static std::map<std::string, unsigned long long> limits;
  return limits;
}
}  // namespace

extern "C" {
__attribute__((visibility("default"))) nvmlReturn_t nvmlInit_v2() {
  if (Hangs("init"))
    for (;;) pause();
  return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t r) {
  return r == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "some error";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned size) {
  snprintf(text, size, "580.95.05");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index == 2) return NVML_ERROR_GPU_IS_LOST;
  if (index == 1 && Hangs("1"))
    for (;;) pause();
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(index + 1));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned size) {
  snprintf(text, size, "GPU-0a100000-0000-0000-0000-%012u", Index(device));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* text, unsigned size) {
  snprintf(text, size, "Test card %u", Index(device));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  *pci = {};
  pci->bus = Index(device) + 1;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t* info) {
  if (info->version != nvmlMemory_v2) return NVML_ERROR_INVALID_ARGUMENT;
  info->total = 1000 * kMiB;
  info->reserved = 10 * kMiB;
  info->used = 300 * kMiB;
  info->free = 690 * kMiB;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int* major, int* minor) {
  *major = 8;
  *minor = 6;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t, unsigned* cores) {
  *cores = 80 * 128;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t* rates) {
  *rates = {42, 7};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                     nvmlProcessInfo_t* infos) {
  constexpr unsigned kProcesses = 200;
  const unsigned room = *count;
  *count = kProcesses;
  if (room < kProcesses) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < kProcesses; ++i) {
    infos[i] = {1000 + i, kMiB, 0xffffffff, 0xffffffff};
  }
  infos[kProcesses - 1].usedGpuMemory = static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                      nvmlProcessInfo_t* infos) {
  if (*count < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
  *count = 1;
  infos[0] = {1000, kMiB, 0xffffffff, 0xffffffff};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const NvmlSetMemoryLimits* limits) {
  Limits()[std::to_string(Index(device)) + limits->name_space] = limits->hard_limit;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, NvmlGetMemoryLimits* limits) {
  limits->hard_limit = Limits()[std::to_string(Index(device)) + limits->name_space];
  return NVML_SUCCESS;
}
}
