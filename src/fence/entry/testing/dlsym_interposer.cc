// Another library's dlsym, as Python distributions and profilers preload: an ordinary function that
// looks names up by the dlsym behind it and counts. Nothing of the fence's behaviour may depend on
// whether it comes first or second.
#include <dlfcn.h>

extern "C" {

int interposed_lookups = 0;

void* dlsym(void* handle, const char* name) {
  using Dlsym = void* (*)(void*, const char*);
  static const auto next = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  ++interposed_lookups;
  void* found = next(handle, name);
  asm volatile("" ::: "memory");  // stays an ordinary call
  return found;
}
}
