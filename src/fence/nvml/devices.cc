#include "nvml/devices.h"

#include "entry/visible.h"
#include "slice/cards.h"
#include "slice/slice.h"

namespace tessera::fence::nvml {
namespace {

struct Uuid {
  std::uint8_t bytes[16] = {};
  bool ok = false;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "GPU-6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", "MIG-...".
Uuid ParseUuid(const char* text) {
  Uuid uuid;
  if (text[0] == '\0' || text[1] == '\0' || text[2] == '\0' || text[3] != '-') return uuid;
  int digits = 0;
  for (const char* at = text + 4; *at != '\0' && digits < 32; ++at) {
    if (*at == '-') continue;
    const int digit = HexDigit(*at);
    if (digit < 0) return uuid;
    std::uint8_t& byte = uuid.bytes[digits / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | digit);
    ++digits;
  }
  uuid.ok = digits == 32;
  return uuid;
}

int CardOfOneDevice(nvmlDevice_t device) {
  char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
  if (real::nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS) return kForeignCard;
  const Uuid uuid = ParseUuid(text);
  return uuid.ok ? CardOfUuid(uuid.bytes) : kForeignCard;
}

nvmlDevice_t ParentOf(nvmlDevice_t device) {
  unsigned is_mig = 0;
  nvmlDevice_t parent = nullptr;
  if (real::nvmlDeviceIsMigDeviceHandle(device, &is_mig) != NVML_SUCCESS || is_mig == 0)
    return nullptr;
  if (real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &parent) != NVML_SUCCESS)
    return nullptr;
  return parent;
}

nvmlDevice_t DeviceOfCard(std::uint32_t card, bool* is_mig) {
  const contract::PolicyCard& entry = TheSlice().policy.Card(card);
  VisibleCard visible{{}, (entry.flags & contract::kCardIsMig) != 0};
  for (int i = 0; i < 16; ++i) visible.uuid[i] = entry.uuid[i];
  char text[kUuidTextBytes + 1] = {};
  WriteUuid(visible, std::span<char, kUuidTextBytes>(text, kUuidTextBytes));
  nvmlDevice_t device = nullptr;
  *is_mig = visible.is_mig;
  if (real::nvmlDeviceGetHandleByUUID(text, &device) != NVML_SUCCESS) return nullptr;
  return device;
}

}  // namespace

bool Fenced() { return AttachSlice() == Mode::kFenced; }
bool HidesCards() { return Fenced() && !TheSlice().from_environment; }

int CardOf(nvmlDevice_t device) {
  if (!Fenced()) return kForeignCard;
  if (TheSlice().from_environment) {
    // CUDA may number the cards otherwise: a card that it has charged is known by its UUID.
    if (const int card = CardOfOneDevice(device); card >= 0) return card;
    unsigned index = 0;
    if (real::nvmlDeviceGetIndex(device, &index) != NVML_SUCCESS) return kForeignCard;
    return index < TheSlice().policy.card_count() ? static_cast<int>(index) : kForeignCard;
  }
  if (const int card = CardOfOneDevice(device); card >= 0) return card;
  if (nvmlDevice_t parent = ParentOf(device)) return CardOfOneDevice(parent);
  // The card that an instance of the slice is part of.
  for (std::uint32_t card = 0; card < TheSlice().policy.card_count(); ++card) {
    bool is_mig = false;
    nvmlDevice_t own = DeviceOfCard(card, &is_mig);
    if (is_mig && own != nullptr && ParentOf(own) == device) return static_cast<int>(card);
  }
  return kForeignCard;
}

bool IsVisible(nvmlDevice_t device) { return !HidesCards() || CardOf(device) >= 0; }

DeviceList VisibleDevices() {
  DeviceList list;
  unsigned physical = 0;
  list.result = real::nvmlDeviceGetCount_v2(&physical);
  if (list.result != NVML_SUCCESS) return list;
  for (std::uint32_t card = 0; card < TheSlice().policy.card_count(); ++card) {
    bool is_mig = false;
    nvmlDevice_t device = DeviceOfCard(card, &is_mig);
    if (is_mig && device != nullptr) device = ParentOf(device);
    if (device == nullptr) continue;
    bool known = false;
    for (unsigned i = 0; i < list.count; ++i) known = known || list.devices[i] == device;
    if (!known) list.devices[list.count++] = device;
  }
  return list;
}

unsigned KeepVisible(std::span<nvmlDevice_t> devices) {
  unsigned kept = 0;
  for (nvmlDevice_t device : devices) {
    if (IsVisible(device)) devices[kept++] = device;
  }
  return kept;
}

}  // namespace tessera::fence::nvml
