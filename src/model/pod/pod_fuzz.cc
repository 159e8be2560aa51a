#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/pod/pod.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto container = tessera::model::ReadPodContainer(text, "");
  if (container && container->request.memory_bytes &&
      *container->request.memory_bytes > tessera::model::kMaxMemory) {
    __builtin_trap();
  }
  return 0;
}
