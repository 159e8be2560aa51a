#include "slice/cards.h"

#include <cstring>

#include "os/os.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kNotAsked = 0, kShift = 3;  // cached value: card + kShift
int g_card_of_device[kMaxDevices];        // atomic

std::uint64_t Hash(const std::uint8_t (&uuid)[16]) {
  std::uint64_t hash = 1469598103934665603u;
  for (const std::uint8_t byte : uuid) hash = (hash ^ byte) * 1099511628211u;
  return hash | 1;
}

// With HAMi's variables a card's limit goes by its index in the container. CUDA_VISIBLE_DEVICES may
// hide some of them from this process: where it is a list of numbers, the device's index in the
// container stands in the list.
std::uint32_t IndexInContainer(std::uint32_t device) {
  const char* list = os::Environment("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return device;
  std::uint32_t at = 0, value = 0;
  bool digits = false;
  for (;; ++list) {
    if (*list >= '0' && *list <= '9' && value < 1000) {
      value = value * 10 + static_cast<std::uint32_t>(*list - '0');
      digits = true;
    } else if ((*list == ',' || *list == '\0') && digits) {
      if (at == device) return value < contract::kMaxCards ? value : device;
      if (*list == '\0') return device;
      ++at;
      value = 0;
      digits = false;
    } else if (*list != ' ') {
      return device;
    }
  }
}

bool IsCard(std::uint32_t i, std::uint64_t key, bool may_claim) {
  std::uint64_t& place = TheSlice().ledger.Card(i).card_key;
  std::uint64_t seen = contract::Load(place);
  if (seen == 0 && may_claim && contract::CompareExchange(place, seen, key)) return true;
  return seen == key;
}

// All processes of the user share one ledger and may number the cards differently: the UUID
// decides, the index only proposes.
int CardByKey(std::uint64_t key, std::uint32_t proposed) {
  const Slice& slice = TheSlice();
  for (std::uint32_t i = 0; i < contract::kMaxCards; ++i) {
    if (IsCard(i, key, false)) return static_cast<int>(i);
  }
  if (proposed < contract::kMaxCards && IsCard(proposed, key, true))
    return static_cast<int>(proposed);
  const std::uint64_t limit =
      proposed < contract::kMaxCards ? slice.policy.LimitBytes(proposed) : 0;
  for (const bool same_limit : {true, false}) {
    for (std::uint32_t i = 0; i < contract::kMaxCards; ++i) {
      const std::uint64_t other = slice.policy.LimitBytes(i);
      if ((same_limit ? other == limit : other < limit) && IsCard(i, key, true))
        return static_cast<int>(i);
    }
  }
  return kForeignCard;
}

int Resolve(CUdevice device) {
  CUuuid uuid;
  CUresult result = real::cuDeviceGetUuid_v2(&uuid, device);
  if (result == CUDA_ERROR_NOT_SUPPORTED) result = real::cuDeviceGetUuid(&uuid, device);
  if (result != CUDA_SUCCESS) return kUnknownCard;
  std::uint8_t bytes[16];
  std::memcpy(bytes, uuid.bytes, sizeof bytes);
  if (TheSlice().from_environment) {
    return CardByKey(Hash(bytes), IndexInContainer(static_cast<std::uint32_t>(device)));
  }
  return CardOfUuid(bytes);
}

}  // namespace

int CardOfUuid(const std::uint8_t (&uuid)[16]) {
  const Slice& slice = TheSlice();
  if (slice.from_environment) {
    for (std::uint32_t i = 0; i < contract::kMaxCards; ++i) {
      if (IsCard(i, Hash(uuid), false)) return static_cast<int>(i);
    }
    return kForeignCard;
  }
  for (std::uint32_t i = 0; i < slice.policy.card_count(); ++i) {
    if (std::memcmp(slice.policy.Card(i).uuid, uuid, sizeof uuid) == 0) return static_cast<int>(i);
  }
  return kForeignCard;
}

int CardOfDevice(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return kUnknownCard;
  int& cached = g_card_of_device[device];
  int value = __atomic_load_n(&cached, __ATOMIC_RELAXED);
  if (value == kNotAsked) {
    value = Resolve(device) + kShift;
    if (value != kUnknownCard + kShift) __atomic_store_n(&cached, value, __ATOMIC_RELAXED);
  }
  return value - kShift;
}

}  // namespace tessera::fence
