// As routes.cc, for a program that is linked with the driver: the address that the dynamic linker
// gave, and a call of it.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

extern "C" {
#define LINKED(name, id, hooked) int name(...);
#include "linked.inc"
#undef LINKED
}

namespace {
struct Linked {
  const char* name;
  int (*function)(...);
  int id;
  bool hooked;
};
const Linked kLinked[] = {
#define LINKED(name, id, hooked) {#name, &name, id, bool(hooked)},
#include "linked.inc"
#undef LINKED
};
}  // namespace

int main() {
  int failures = 0;
  for (const Linked& entry : kLinked) {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(entry.function), &info);
    const bool fenced = std::strstr(info.dli_fname, "libtessera.so") != nullptr;
    if (fenced != entry.hooked)
      ++failures, std::printf("FAIL %s comes from %s\n", entry.name, info.dli_fname);
    if (std::strncmp(entry.name, "cuGetProcAddress", 16) == 0 ||
        std::strcmp(entry.name, "nvmlErrorString") == 0)
      continue;
    const int got = entry.function(0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L);
    if (got != entry.id)
      ++failures, std::printf("FAIL %s returned %d, expected %d\n", entry.name, got, entry.id);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
