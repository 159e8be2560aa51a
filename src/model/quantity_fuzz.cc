#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/quantity.h"
#include "model/uuid.h"

using namespace tessera::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto memory = ParseMemory("--mem", text);
  if (memory && (*memory == 0 || *memory > kMaxMemory || *memory % kMib != 0)) std::abort();
  auto cores = ParseCores("--cores", text);
  if (cores && (*cores < 1 || *cores > 100)) std::abort();
  (void)ParseCardCount("--cards", text);
  (void)ParsePriority("--priority", text);
  if (!CheckName("name", NameFromCommand(text))) std::abort();
  auto uuid = ParseUuid(text);
  if (uuid && ParseUuid(ToString(*uuid)) != uuid) std::abort();
  return 0;
}
