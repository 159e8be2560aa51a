// A node file may hold anything: it is read or refused in one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/nodes/node_description.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto node = tessera::sim::ParseNode(std::string(reinterpret_cast<const char*>(data), size));
  if (node) {
    if (node->card_count < 1 || node->card_count > tessera::sim::kMaxCards) std::abort();
    for (std::uint32_t i = 0; i < node->card_count; ++i) {
      if (node->specs[i].reserved_bytes > node->specs[i].memory_bytes) std::abort();
    }
  } else if (node.error().message.empty() || node.error().message.find('\n') != std::string::npos) {
    std::abort();
  }
  return 0;
}
