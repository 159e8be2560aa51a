// A card's or MIG instance's identity: 16 bytes as cuDeviceGetUuid returns them, "GPU-..." or
// "MIG-..." in text as NVML and nvidia-smi write them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::model {

struct Uuid {
  std::array<std::uint8_t, 16> bytes{};
  bool is_mig = false;

  friend bool operator==(const Uuid&, const Uuid&) = default;
};

// "GPU-8-4-4-4-12" or "MIG-..." in hex digits of either case; nothing for anything else.
std::optional<Uuid> ParseUuid(std::string_view text);
std::string ToString(const Uuid& uuid);

}  // namespace tessera::model
