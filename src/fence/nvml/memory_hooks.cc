// Memory as the slice has it: total is the limit, used is what the ledger says, and the fields add
// up.
#include "charge/charge.h"
#include "nvml/devices.h"
#include "real.h"

namespace tessera::fence::nvml {
namespace {

struct Amounts {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::uint64_t free() const { return total - used; }
};

// What a card of the slice shows. A lowered limit may lie below what is held: then everything is
// used and nothing free.
Amounts Shown(int card) {
  const Figures figures = CardFigures(card);
  return {figures.limit, figures.used < figures.limit ? figures.used : figures.limit};
}

std::uint64_t Least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

nvmlReturn_t Attributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes,
                        nvmlReturn_t result) {
  if (result != NVML_SUCCESS || attributes == nullptr) return result;
  if (const int card = CardOf(device); card >= 0) {
    attributes->memorySizeMB = Least(attributes->memorySizeMB, Shown(card).total >> 20);
  }
  return result;
}

}  // namespace
}  // namespace tessera::fence::nvml

extern "C" {

namespace real = tessera::fence::real;
namespace own = tessera::fence::nvml;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = real::nvmlDeviceGetMemoryInfo(device, memory);
  if (result != NVML_SUCCESS || memory == nullptr) return result;
  const int card = own::CardOf(device);
  if (card < 0) return result;
  const own::Amounts shown = own::Shown(card);
  memory->total = shown.total;
  memory->used = shown.used;
  memory->free = shown.free();
  return result;
}

// `reserved` is the driver's own share of the physical card: the slice has none, so that total =
// free + used.
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = real::nvmlDeviceGetMemoryInfo_v2(device, memory);
  if (result != NVML_SUCCESS || memory == nullptr) return result;
  const int card = own::CardOf(device);
  if (card < 0) return result;
  const own::Amounts shown = own::Shown(card);
  memory->total = shown.total;
  memory->reserved = 0;
  memory->used = shown.used;
  memory->free = shown.free();
  return result;
}

// BAR1 is a window onto the card's memory that all tenants share. A slice is shown no more of it
// than it has memory, and no more of it in use than it holds.
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* bar1) {
  const nvmlReturn_t result = real::nvmlDeviceGetBAR1MemoryInfo(device, bar1);
  if (result != NVML_SUCCESS || bar1 == nullptr) return result;
  const int card = own::CardOf(device);
  if (card < 0) return result;
  const own::Amounts shown = own::Shown(card);
  bar1->bar1Total = own::Least(bar1->bar1Total, shown.total);
  bar1->bar1Used = own::Least(own::Least(bar1->bar1Used, shown.used), bar1->bar1Total);
  bar1->bar1Free = bar1->bar1Total - bar1->bar1Used;
  return result;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return own::Attributes(device, attributes, real::nvmlDeviceGetAttributes(device, attributes));
}
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return own::Attributes(device, attributes, real::nvmlDeviceGetAttributes_v2(device, attributes));
}

}  // extern "C"
