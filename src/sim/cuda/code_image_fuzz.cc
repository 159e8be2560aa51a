// Any bytes as device code: no crash, no read outside, no memory beyond what the input pays for.
#include <cstdint>

#include "sim/cuda/code_image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::sim;
  if (size == 0) return 0;
  const std::span<const std::uint8_t> bytes(data + 1, size - 1);
  const ComputeCapability cards[] = {{8, 0}, {8, 6}, {9, 0}, {12, 0}};
  ChooseImage(bytes, cards[data[0] & 3], (data[0] & 4) != 0);
  return 0;
}
