// /proc/PID/stat holds a name that any tenant may choose.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "os/os.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto stat = tessera::fence::os::ParseProcessStat(text);
  if (!stat.ok && !stat.Dead()) std::abort();
  return 0;
}
