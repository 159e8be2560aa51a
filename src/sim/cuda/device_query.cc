// What a program asks about a device.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/architecture.h"
#include "sim/cuda/device.h"

using namespace tessera::sim;

namespace {

// Copies a text into the caller's buffer, cut to `length` with its terminator, as the driver does.
CUresult CopyText(char* out, int length, const char* text) {
  if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, static_cast<std::size_t>(length), "%s", text);
  return CUDA_SUCCESS;
}

CUresult Uuid(CUuuid* uuid, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, device->spec->uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

std::uint32_t LinkBetween(const Device& a, const Device& b) { return a.spec->link_type[b.card]; }

// The node's links are what peers can reach each other by; a card and itself are no peers.
bool CanAccess(const Device& a, const Device& b) {
  return a.card != b.card && LinkBetween(a, b) != 0;
}

constexpr std::uint32_t kNvLink = 3;

}  // namespace

SIM_API(cuDeviceGetCount)(int* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = DeviceCount();
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet)(CUdevice* device, int ordinal) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetName)(char* name, int length, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  return CopyText(name, length, device->spec->name);
}

SIM_API(cuDeviceGetUuid)(CUuuid* uuid, CUdevice device) { return Uuid(uuid, device); }
// The second version names a MIG device where the first names its card.
SIM_API(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice ordinal) {
  SIM_TRY(Uuid(uuid, ordinal));
  if (const MigSpec* mig = FindDevice(ordinal)->mig)
    std::memcpy(uuid->bytes, mig->uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

// LUIDs belong to Windows; on Linux the driver answers NOT_SUPPORTED for devices that have none.
SIM_API(cuDeviceGetLuid)(char* luid, unsigned* node_mask, CUdevice ordinal) {
  if (!luid || !node_mask) return CUDA_ERROR_INVALID_VALUE;
  return FindDevice(ordinal) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API(cuDeviceTotalMem_v2)(std::size_t* bytes, CUdevice ordinal) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->spec->memory_bytes;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceTotalMem)(unsigned* bytes, CUdevice ordinal) {
  std::size_t full = 0;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(impl_cuDeviceTotalMem_v2(&full, ordinal));
  *bytes = static_cast<unsigned>(std::min<std::size_t>(full, 0xFFFFFFFF));
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  if (!value || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *value = AttributeOf(*device->spec, attribute);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetProperties)(CUdevprop* properties, CUdevice ordinal) {
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  const auto value = [&](int attribute) { return AttributeOf(*device->spec, attribute); };
  *properties = {
      value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      {value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
       value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      {value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
       value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      value(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      value(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceComputeCapability)(int* major, int* minor, CUdevice ordinal) {
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *major = static_cast<int>(device->spec->cc_major);
  *minor = static_cast<int>(device->spec->cc_minor);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetPCIBusId)(char* text, int length, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  char id[32];
  std::snprintf(id, sizeof id, "%04X:%02X:%02X.0", device->spec->pci_domain, device->spec->pci_bus,
                device->spec->pci_device);
  return CopyText(text, length, id);
}

// Accepts [domain]:[bus]:[device].[function], [domain]:[bus]:[device] and
// [bus]:[device].[function], in hexadecimal.
SIM_API(cuDeviceGetByPCIBusId)(CUdevice* found, const char* text) {
  if (!found || !text) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int end = 0;
  const auto whole = [&](int fields, int wanted) { return fields == wanted && text[end] == '\0'; };
  const bool parsed =
      whole(std::sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end), 4) ||
      whole(std::sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &end), 3) ||
      (domain = 0, whole(std::sscanf(text, "%x:%x.%x%n", &bus, &slot, &function, &end), 3));
  if (!parsed) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < DeviceCount(); ++i) {
    const CardSpec& spec = *FindDevice(i)->spec;
    if (spec.pci_domain == domain && spec.pci_bus == bus && spec.pci_device == slot) {
      *found = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API(cuDeviceGetTexture1DLinearMaxWidth)(std::size_t* elements, CUarray_format,
                                            unsigned channels, CUdevice ordinal) {
  if (!elements || channels == 0 || channels > 4 || channels == 3) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *elements = std::size_t{1} << 28;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceCanAccessPeer)(int* can, CUdevice ordinal, CUdevice peer) {
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  const Device *a = FindDevice(ordinal), *b = FindDevice(peer);
  if (!a || !b) return CUDA_ERROR_INVALID_DEVICE;
  *can = CanAccess(*a, *b);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAttribute)(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice destination) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Device *a = FindDevice(source), *b = FindDevice(destination);
  if (!a || !b || a == b) return CUDA_ERROR_INVALID_DEVICE;
  const bool reachable = CanAccess(*a, *b), nvlink = LinkBetween(*a, *b) == kNvLink;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:  // lower is better
      *value = nvlink ? 0 : 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = reachable;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
      *value = reachable && nvlink && attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuDeviceGetExecAffinitySupport)(int* supported, CUexecAffinityType type, CUdevice ordinal) {
  if (!supported || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *supported = 0;  // needs MPS
  return CUDA_SUCCESS;
}

// No atomics over PCIe; over NVLink all integer ones.
SIM_API(cuDeviceGetHostAtomicCapabilities)(unsigned* capabilities,
                                           const CUatomicOperation* operations, unsigned count,
                                           CUdevice ordinal) {
  if (!capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::fill_n(capabilities, count, 0u);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetP2PAtomicCapabilities)(unsigned* capabilities,
                                          const CUatomicOperation* operations, unsigned count,
                                          CUdevice source, CUdevice destination) {
  if (!capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Device *a = FindDevice(source), *b = FindDevice(destination);
  if (!a || !b || a == b) return CUDA_ERROR_INVALID_DEVICE;
  const bool nvlink = LinkBetween(*a, *b) == kNvLink;
  std::fill_n(
      capabilities, count,
      nvlink ? unsigned{CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64} : 0u);
  return CUDA_SUCCESS;
}
