// Which cards there are, and what they are called.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

// A handle of a card that is there.
nvmlReturn_t Give(int card, nvmlDevice_t* device) {
  if (Node().cards[card].lost.load() != 0) return NVML_ERROR_GPU_IS_LOST;
  *device = HandleOf(card);
  return NVML_SUCCESS;
}

bool HasUuid(int card, const std::uint8_t uuid[16]) {
  return memcmp(Node().specs[card].uuid, uuid, 16) == 0;
}

struct Brand {
  const char* name;
  nvmlBrandType_t type;
};
constexpr Brand kBrands[] = {
    {"Tesla", NVML_BRAND_TESLA},
    {"NVIDIA", NVML_BRAND_NVIDIA},
    {"GeForce", NVML_BRAND_GEFORCE},
    {"Quadro", NVML_BRAND_QUADRO},
    {"GeForce RTX", NVML_BRAND_GEFORCE_RTX},
    {"NVIDIA RTX", NVML_BRAND_NVIDIA_RTX},
    {"Titan", NVML_BRAND_TITAN},
};

void FillBusId(const CardSpec& spec, char* to) {
  snprintf(to, NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE, "%08X:%02X:%02X.0", spec.pci_domain,
           spec.pci_bus, spec.pci_device);
}

void FillPci(const CardSpec& spec, nvmlPciInfo_t* pci, bool subsystem) {
  *pci = {};
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", spec.pci_domain & 0xffff,
           spec.pci_bus & 0xff, spec.pci_device & 0xff);
  FillBusId(spec, pci->busId);
  pci->domain = spec.pci_domain;
  pci->bus = spec.pci_bus;
  pci->device = spec.pci_device;
  pci->pciDeviceId = spec.pci_device_id;
  if (subsystem) pci->pciSubSystemId = spec.pci_subsystem_id;
}

// The place of the fields that v1 had: no busId at the end, the short form first.
struct PciInfoV1 {
  char bus_id[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
};

}  // namespace

nvmlReturn_t DeviceGetCount_v2(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned int>(CardCount());
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetCount(unsigned int* count) { return DeviceGetCount_v2(count); }

nvmlReturn_t DeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (device == nullptr || index >= static_cast<unsigned int>(CardCount()))
    return NVML_ERROR_INVALID_ARGUMENT;
  return Give(static_cast<int>(index), device);
}

nvmlReturn_t DeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return DeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t DeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  if (serial == nullptr || device == nullptr || serial[0] == 0) return NVML_ERROR_INVALID_ARGUMENT;
  for (int card = 0; card < CardCount(); ++card) {
    if (strcmp(Node().specs[card].serial, serial) == 0) return Give(card, device);
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  char text[48];
  for (int card = 0; card < CardCount(); ++card) {
    const CardSpec& spec = Node().specs[card];
    UuidText("GPU", spec.uuid, text);
    if (strcasecmp(text, uuid) == 0) return Give(card, device);
    for (std::uint32_t mig = 0; spec.mig_enabled != 0 && mig < spec.mig_count; ++mig) {
      UuidText("MIG", spec.mig[mig].uuid, text);
      if (strcasecmp(text, uuid) != 0) continue;
      *device = HandleOf(card, static_cast<int>(mig));
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == NVML_UUID_TYPE_ASCII) return DeviceGetHandleByUUID(uuid->value.str, device);
  if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
  for (int card = 0; card < CardCount(); ++card) {
    if (HasUuid(card, uuid->value.bytes)) return Give(card, device);
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  if (bus_id == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned int domain = 0, bus = 0, slot = 0, function = 0;
  // With and without a domain, as CUDA and lspci write it.
  if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    domain = 0;
    if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2) return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (int card = 0; card < CardCount(); ++card) {
    const CardSpec& spec = Node().specs[card];
    if (spec.pci_domain == domain && spec.pci_bus == bus && spec.pci_device == slot)
      return Give(card, device);
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t DeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* device) {
  return DeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t DeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  if (const MigSpec* mig = Mig(device)) {
    char text[136];
    snprintf(text, sizeof text, "%s MIG %s", Spec(device).name, mig->profile);
    return CopyText(text, name, length);
  }
  return CopyText(Spec(device).name, name, length);
}

nvmlReturn_t DeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  if (type == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *type = NVML_BRAND_UNKNOWN;
  for (const Brand& brand : kBrands) {
    if (strcmp(brand.name, Spec(device).brand) == 0) *type = brand.type;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const Device& known = *DeviceOf(device);
  *index = static_cast<unsigned int>(known.mig < 0 ? known.card : known.mig);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *minor = static_cast<unsigned int>(DeviceOf(device)->card);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetModuleId(nvmlDevice_t device, unsigned int* id) {
  return DeviceGetMinorNumber(device, id);
}

nvmlReturn_t DeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  if (Spec(device).serial[0] == 0) return NVML_ERROR_NOT_SUPPORTED;
  return CopyText(Spec(device).serial, serial, length);
}

nvmlReturn_t DeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  char text[48];
  if (const MigSpec* mig = Mig(device)) {
    UuidText("MIG", mig->uuid, text);
  } else {
    UuidText("GPU", Spec(device).uuid, text);
  }
  return CopyText(text, uuid, length);
}

nvmlReturn_t DeviceGetBoardPartNumber(nvmlDevice_t device, char* number, unsigned int length) {
  char text[24];
  snprintf(text, sizeof text, "900-%05X-0000-000", Spec(device).pci_device_id >> 16);
  return CopyText(text, number, length);
}

nvmlReturn_t DeviceGetBoardId(nvmlDevice_t device, unsigned int* id) {
  if (id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *id = Spec(device).pci_bus << 8;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetMultiGpuBoard(nvmlDevice_t, unsigned int* multi) {
  if (multi == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *multi = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int* same) {
  if (same == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *same = DeviceOf(a)->card == DeviceOf(b)->card ? 1 : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetVbiosVersion(nvmlDevice_t device, char* version, unsigned int length) {
  char text[24];
  const std::uint32_t id = Spec(device).pci_device_id >> 16;
  snprintf(text, sizeof text, "94.%02X.%02X.00.01", id >> 8 & 0xff, id & 0xff);
  return CopyText(text, version, length);
}

nvmlReturn_t DeviceGetInforomImageVersion(nvmlDevice_t device, char* version, unsigned int length) {
  if (Spec(device).ecc_supported == 0) return NVML_ERROR_NOT_SUPPORTED;
  return CopyText("G133.0200.00.05", version, length);
}

nvmlReturn_t DeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  FillPci(Spec(device), pci, true);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  FillPci(Spec(device), &whole, true);
  // v2 ended with four words that were kept for later; busId came in v3.
  memcpy(pci, &whole, sizeof(PciInfoV1));
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  FillPci(Spec(device), &whole, false);
  memcpy(pci, &whole, sizeof(PciInfoV1) - sizeof(unsigned int));
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (pci->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const CardSpec& spec = Spec(device);
  pci->domain = spec.pci_domain;
  pci->bus = spec.pci_bus;
  pci->device = spec.pci_device;
  pci->pciDeviceId = spec.pci_device_id;
  pci->pciSubSystemId = spec.pci_subsystem_id;
  pci->baseClass = 3;  // display controller
  pci->subClass = 2;   // 3D controller
  FillBusId(spec, pci->busId);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *major = static_cast<int>(Spec(device).cc_major);
  *minor = static_cast<int>(Spec(device).cc_minor);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* architecture) {
  if (architecture == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const CardSpec& spec = Spec(device);
  switch (spec.cc_major * 10 + spec.cc_minor) {
    case 70:
      *architecture = NVML_DEVICE_ARCH_VOLTA;
      break;
    case 75:
      *architecture = NVML_DEVICE_ARCH_TURING;
      break;
    case 80:
    case 86:
    case 87:
      *architecture = NVML_DEVICE_ARCH_AMPERE;
      break;
    case 89:
      *architecture = NVML_DEVICE_ARCH_ADA;
      break;
    case 90:
      *architecture = NVML_DEVICE_ARCH_HOPPER;
      break;
    case 100:
    case 103:
    case 120:
      *architecture = NVML_DEVICE_ARCH_BLACKWELL;
      break;
    default:
      *architecture = NVML_DEVICE_ARCH_UNKNOWN;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* cores) {
  if (cores == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *cores = Spec(device).sm_count * Spec(device).cores_per_sm;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* bits) {
  if (bits == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *bits = Spec(device).memory_bus_bits;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetBusType(nvmlDevice_t, nvmlBusType_t* type) {
  if (type == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *type = NVML_BUS_TYPE_PCIE;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetIrqNum(nvmlDevice_t device, unsigned int* number) {
  if (number == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *number = 64 + static_cast<unsigned int>(DeviceOf(device)->card);
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
