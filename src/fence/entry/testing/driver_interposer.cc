// Another library that stands before one driver function, finds the next by RTLD_NEXT and adds
// 1,000,000 to its answer.
#include <dlfcn.h>

extern "C" {

void* interposer_next = nullptr;

int cuMemGetInfo_v2(long free, long total) {
  interposer_next = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
  if (interposer_next == nullptr) return -1;
  return 1000000 + reinterpret_cast<int (*)(long, long)>(interposer_next)(free, total);
}
}
