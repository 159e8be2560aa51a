// Counting and finding cards: a card outside the slice does not exist, whatever it is asked by.
#include "nvml/devices.h"
#include "real.h"
#include "slice/cards.h"
#include "slice/slice.h"

namespace tessera::fence::nvml {
namespace {

constexpr unsigned kMostDevices = 256;  // of one machine; NVML itself knows at most 64

nvmlReturn_t Count(unsigned* count, nvmlReturn_t result) {
  if (result != NVML_SUCCESS || count == nullptr || !HidesCards()) return result;
  const DeviceList list = VisibleDevices();
  *count = list.count;
  return list.result;
}

template <typename Real>
nvmlReturn_t ByIndex(unsigned index, nvmlDevice_t* device, Real real_function) {
  if (device == nullptr || !HidesCards()) return real_function(index, device);
  const DeviceList list = VisibleDevices();
  if (list.result != NVML_SUCCESS) return list.result;
  if (index >= list.count) return NVML_ERROR_INVALID_ARGUMENT;
  *device = list.devices[index];
  return NVML_SUCCESS;
}

nvmlReturn_t Found(nvmlDevice_t* device, nvmlReturn_t result) {
  if (result != NVML_SUCCESS || device == nullptr || IsVisible(*device)) return result;
  *device = nullptr;
  return NVML_ERROR_NOT_FOUND;
}

// Lists of handles: asked in full behind the program's back, then thinned out. `ask(count, array)`
// is the real function.
template <typename Ask>
nvmlReturn_t Thin(unsigned* count, nvmlDevice_t* devices, nvmlReturn_t too_small, Ask ask) {
  if (count == nullptr || !HidesCards()) return ask(count, devices);
  nvmlDevice_t all[kMostDevices];
  unsigned found = kMostDevices;
  const nvmlReturn_t result = ask(&found, all);
  if (result != NVML_SUCCESS) return result;
  const unsigned kept = KeepVisible({all, found < kMostDevices ? found : kMostDevices});
  const unsigned room = devices != nullptr ? *count : 0;
  if (devices != nullptr && room < kept && too_small != NVML_SUCCESS) {
    *count = kept;
    return too_small;
  }
  const unsigned copied = devices == nullptr ? 0 : kept < room ? kept : room;
  for (unsigned i = 0; i < copied; ++i) devices[i] = all[i];
  *count = devices == nullptr ? kept : copied;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace tessera::fence::nvml

extern "C" {

namespace fence = tessera::fence;
namespace real = tessera::fence::real;
namespace own = tessera::fence::nvml;

nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return own::Count(count, real::nvmlDeviceGetCount(count));
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return own::Count(count, real::nvmlDeviceGetCount_v2(count));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return own::ByIndex(index, device, real::nvmlDeviceGetHandleByIndex);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return own::ByIndex(index, device, real::nvmlDeviceGetHandleByIndex_v2);
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetHandleByUUID(uuid, device));
}
nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetHandleByUUIDV(uuid, device));
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetHandleByPciBusId(bus_id, device));
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetHandleByPciBusId_v2(bus_id, device));
}
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetHandleBySerial(serial, device));
}
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance,
                                                          nvmlDevice_t* device) {
  return own::Found(device, real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, device));
}

// The position among the slice's cards, as the index of nvmlDeviceGetHandleByIndex.
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  const nvmlReturn_t result = real::nvmlDeviceGetIndex(device, index);
  if (result != NVML_SUCCESS || index == nullptr || !own::HidesCards()) return result;
  const own::DeviceList list = own::VisibleDevices();
  for (unsigned i = 0; i < list.count; ++i) {
    if (list.devices[i] == device) {
      *index = i;
      return NVML_SUCCESS;
    }
  }
  return result;  // a MIG instance: numbered within its card
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                 nvmlDevice_t* instance) {
  if (instance == nullptr || !own::HidesCards()) {
    return real::nvmlDeviceGetMigDeviceHandleByIndex(device, index, instance);
  }
  unsigned most = 0;
  if (const nvmlReturn_t result = real::nvmlDeviceGetMaxMigDeviceCount(device, &most);
      result != NVML_SUCCESS)
    return result;
  unsigned seen = 0;
  for (unsigned i = 0; i < most && i < own::kMostDevices; ++i) {
    nvmlDevice_t candidate = nullptr;
    const nvmlReturn_t result = real::nvmlDeviceGetMigDeviceHandleByIndex(device, i, &candidate);
    if (result == NVML_ERROR_NOT_FOUND) continue;
    if (result != NVML_SUCCESS) return result;
    if (!own::IsVisible(candidate) || seen++ != index) continue;
    *instance = candidate;
    return NVML_SUCCESS;
  }
  return index < most ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned* count, nvmlDevice_t* devices) {
  return own::Thin(count, devices, NVML_SUCCESS, [&](unsigned* n, nvmlDevice_t* to) {
    return real::nvmlDeviceGetTopologyNearestGpus(device, level, n, to);
  });
}
nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, nvmlDevice_t* devices) {
  return own::Thin(count, devices, NVML_SUCCESS, [&](unsigned* n, nvmlDevice_t* to) {
    return real::nvmlSystemGetTopologyGpuSet(cpu, n, to);
  });
}
nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t unit, unsigned* count, nvmlDevice_t* devices) {
  return own::Thin(
      count, devices, NVML_ERROR_INSUFFICIENT_SIZE,
      [&](unsigned* n, nvmlDevice_t* to) { return real::nvmlUnitGetDevices(unit, n, to); });
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned* count) {
  const nvmlReturn_t result = real::nvmlGetExcludedDeviceCount(count);
  if (result == NVML_SUCCESS && count != nullptr && own::HidesCards()) *count = 0;
  return result;
}
nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned index, nvmlExcludedDeviceInfo_t* info) {
  if (own::HidesCards()) return NVML_ERROR_INVALID_ARGUMENT;
  return real::nvmlGetExcludedDeviceInfoByIndex(index, info);
}

}  // extern "C"
