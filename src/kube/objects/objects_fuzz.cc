// What the network says is taken apart without a crash, and what comes out is whole: a list, a line
// of a watch or a refusal, by the first byte.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kube/objects/list.h"

using namespace tessera::kube;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string before = text;
  const auto check = [](bool good) {
    if (!good) std::abort();
  };
  if (data[0] % 3 == 0) {
    const auto list = ReadList(text, ReadObjectMeta);
    check(list || !list.error().message.empty());
    if (list) {
      check(!list->resource_version.empty());
      for (const ObjectPtr& item : list->items) check(!item->meta.name.empty());
    }
  } else if (data[0] % 3 == 1) {
    const auto event = ReadWatchLine(text, ReadObjectMeta);
    check(event || !event.error().message.empty());
    if (event && event->type != WatchEvent::Type::kError) {
      check(!event->object->meta.resource_version.empty());
      check(event->type == WatchEvent::Type::kBookmark || !event->object->meta.name.empty());
      (void)EndsInitialEvents(*event);
    }
  } else {
    const tessera::Error error = ErrorOf(StatusOfAnswer(100 + data[0] * 2, text));
    check(!error.message.empty() && error.message.find('\n') == std::string::npos);
  }
  check(text == before);
  return 0;
}
