// CUDA_VISIBLE_DEVICES is the tenant's text: whatever it is, only UUIDs of the slice come out, each
// once.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "entry/visible.h"

using tessera::fence::VisibleCard;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wanted(reinterpret_cast<const char*>(data), size);
  VisibleCard cards[3] = {{{1}, false}, {{1, 2}, false}, {{3}, true}};
  char text[3 * (tessera::fence::kUuidTextBytes + 1)];
  const std::string_view value = tessera::fence::VisibleDevices(cards, wanted.c_str(), text);
  if (value == "-1") return 0;
  if (value.empty() ||
      value.size() % (tessera::fence::kUuidTextBytes + 1) != tessera::fence::kUuidTextBytes)
    std::abort();
  unsigned seen = 0;
  for (std::size_t at = 0; at < value.size(); at += tessera::fence::kUuidTextBytes + 1) {
    unsigned card = 3;
    for (unsigned i = 0; i < 3; ++i) {
      char uuid[tessera::fence::kUuidTextBytes];
      tessera::fence::WriteUuid(cards[i], uuid);
      if (value.substr(at, tessera::fence::kUuidTextBytes) == std::string_view(uuid, sizeof uuid))
        card = i;
    }
    if (card == 3 || (seen >> card & 1) != 0) std::abort();
    seen |= 1u << card;
  }
  return 0;
}
