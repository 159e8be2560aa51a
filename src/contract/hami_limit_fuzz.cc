// Any text as a limit: a value and no error, or an error and no value.
#include <cstdint>
#include <cstdlib>

#include "contract/hami_limit.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace c = tessera::contract;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const c::LimitValue v : {c::ParseMemoryLimit(text), c::ParseCoreLimit(text)}) {
    if ((v.error == nullptr) != (v.value != 0)) std::abort();
    if (v.value >> 48 != 0) std::abort();
  }
  return 0;
}
