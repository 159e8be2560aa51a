// Event sets: a waiter polls the node's counters, so that whoever raises an event needs to know no
// waiter.
#include <stdlib.h>

#include <algorithm>

#include "impl.h"
#include "sim/nvml/library.h"

// The type behind nvmlEventSet_t; all zero but `alive` when new.
struct nvmlEventSet_st {
  static constexpr unsigned long long kAlive = 0x5445535445564e4c;  // tells a freed or foreign set
  unsigned long long alive;
  struct Watched {
    unsigned long long types;
    std::uint64_t xids, corrected, uncorrected;
  } cards[tessera::sim::kMaxCards];
};

namespace tessera::sim::nvml {
namespace {

constexpr unsigned long long kSupported =
    nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
constexpr std::uint64_t kPollNs = 5'000'000;

bool Valid(nvmlEventSet_t set) { return set != nullptr && set->alive == nvmlEventSet_st::kAlive; }

// The next event of a card, taken from `watched`; type 0 when there is none.
nvmlEventData_t Next(int card, nvmlEventSet_st::Watched& watched) {
  const CardState& state = Node().cards[card];
  nvmlEventData_t event{HandleOf(card), 0, 0, 0xffffffff, 0xffffffff};
  const std::uint64_t xids = state.xid_sequence.load();
  if (xids > watched.xids && (watched.types & nvmlEventTypeXidCriticalError) != 0) {
    if (xids - watched.xids > kMaxXids)
      watched.xids = xids - kMaxXids;  // older ones are overwritten
    event.eventType = nvmlEventTypeXidCriticalError;
    event.eventData = state.xids[watched.xids++ % kMaxXids].code.load();
  } else if (state.ecc_uncorrected.load() > watched.uncorrected &&
             (watched.types & nvmlEventTypeDoubleBitEccError) != 0) {
    watched.uncorrected = state.ecc_uncorrected.load();
    event.eventType = nvmlEventTypeDoubleBitEccError;
  } else if (state.ecc_corrected.load() > watched.corrected &&
             (watched.types & nvmlEventTypeSingleBitEccError) != 0) {
    watched.corrected = state.ecc_corrected.load();
    event.eventType = nvmlEventTypeSingleBitEccError;
  }
  return event;
}

nvmlReturn_t Look(nvmlEventSet_t set, nvmlEventData_t* data) {
  for (int card = 0; card < CardCount(); ++card) {
    nvmlEventSet_st::Watched& watched = set->cards[card];
    if (watched.types == 0) continue;
    const nvmlEventData_t event = Next(card, watched);
    if (event.eventType != 0) {
      *data = event;
      return NVML_SUCCESS;
    }
    if (Node().cards[card].lost.load() != 0) return NVML_ERROR_GPU_IS_LOST;
  }
  return NVML_ERROR_TIMEOUT;
}

}  // namespace

nvmlReturn_t EventSetCreate(nvmlEventSet_t* set) {
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  // malloc, not new: that would bring the C++ library's exceptions into every program.
  *set = static_cast<nvmlEventSet_st*>(calloc(1, sizeof(nvmlEventSet_st)));
  if (*set == nullptr) return NVML_ERROR_MEMORY;
  (*set)->alive = nvmlEventSet_st::kAlive;
  return NVML_SUCCESS;
}

nvmlReturn_t EventSetFree(nvmlEventSet_t set) {
  if (!Valid(set)) return NVML_ERROR_INVALID_ARGUMENT;
  set->alive = 0;
  free(set);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
  if (types == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *types = Spec(device).ecc_supported != 0
               ? kSupported
               : static_cast<unsigned long long>(nvmlEventTypeXidCriticalError);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                  nvmlEventSet_t set) {
  if (!Valid(set)) return NVML_ERROR_INVALID_ARGUMENT;
  if ((types & ~static_cast<unsigned long long>(nvmlEventTypeAll)) != 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  unsigned long long supported = 0;
  DeviceGetSupportedEventTypes(device, &supported);
  if ((types & ~supported) != 0) return NVML_ERROR_NOT_SUPPORTED;
  nvmlEventSet_st::Watched& watched = set->cards[DeviceOf(device)->card];
  if (watched.types == 0) {
    const CardState& state = State(device);
    watched.xids = state.xid_sequence.load();
    watched.corrected = state.ecc_corrected.load();
    watched.uncorrected = state.ecc_uncorrected.load();
  }
  watched.types |= types;
  return NVML_SUCCESS;
}

nvmlReturn_t EventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeout_ms) {
  if (!Valid(set) || data == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::uint64_t deadline = NowNs() + std::uint64_t{timeout_ms} * 1'000'000;
  for (;;) {
    const nvmlReturn_t seen = Look(set, data);
    if (seen != NVML_ERROR_TIMEOUT || NowNs() >= deadline) return seen;
    SleepUntil(std::min(deadline, NowNs() + kPollNs));
  }
}

// The first version had no instance numbers at the end of its record.
nvmlReturn_t EventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeout_ms) {
  if (data == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlEventData_t whole{};
  const nvmlReturn_t result = EventSetWait_v2(set, &whole, timeout_ms);
  if (result == NVML_SUCCESS) {
    data->device = whole.device;
    data->eventType = whole.eventType;
    data->eventData = whole.eventData;
  }
  return result;
}

}  // namespace tessera::sim::nvml
