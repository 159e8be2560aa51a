#include "driver/testing/fake_nvml.h"

namespace tessera::driver::testing {

Card A10G(int index) {
  Card card;
  card.index = index;
  card.uuid = "GPU-0a100000-0000-0000-0000-00000000000" + std::to_string(index);
  card.name = "NVIDIA A10G";
  card.pci = {0, 0, static_cast<std::uint32_t>(0x1e + index)};
  card.memory_bytes = std::uint64_t{23028} << 20;
  card.reserved_bytes = std::uint64_t{297} << 20;
  card.cc_major = 8;
  card.cc_minor = 6;
  card.sm_count = 80;
  return card;
}

}  // namespace tessera::driver::testing
