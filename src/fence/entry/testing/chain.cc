// RTLD_NEXT chains: program, fence, another interposer (driver_interposer.cc) and driver, in the
// order of the preload list.
//
//   fence_chain first|second|linked   where the other interposer stands against the fence
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

extern "C" int cuMemGetInfo_v2(long, long);
extern "C" int cuDeviceGetCount(long);  // keeps the driver linked

namespace {

int failures = 0;

void Expect(bool ok, const char* what) {
  if (ok) return;
  ++failures;
  std::printf("FAIL %s\n", what);
}

const char* FileOf(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

bool IsFence(void* address) { return std::strstr(FileOf(address), "libtessera.so") != nullptr; }
bool IsInterposer(void* address) {
  return std::strstr(FileOf(address), "driver_interposer") != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool first = std::strcmp(argv[1], "first") == 0;
  cuDeviceGetCount(0);
  void* interposer = dlopen("libfence_driver_interposer.so", RTLD_NOW | RTLD_NOLOAD);
  Expect(interposer != nullptr, "the interposer is not loaded");
  if (interposer == nullptr) return 1;
  auto* next = static_cast<void**>(dlsym(interposer, "interposer_next"));
  auto* own = reinterpret_cast<int (*)(long, long)>(dlsym(interposer, "cuMemGetInfo_v2"));
  Expect(IsInterposer(reinterpret_cast<void*>(own)),
         "dlsym on the interposer's handle gives another function");

  const int plain = cuMemGetInfo_v2(0, 0);
  const int through = own(0, 0);
  Expect(IsFence(*next), "the interposer's RTLD_NEXT does not lead to the fence");
  Expect(through > 1000000, "the interposer is not on the way");
  // Linked calls bind to whoever stands first in the list.
  Expect(plain == (first ? through : through - 1000000), "the linked call took another way");

  // What a program gets by RTLD_DEFAULT is what it got without the fence: the interposer, which
  // leads to the fence.
  Expect(IsInterposer(dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2")),
         "RTLD_DEFAULT does not give the interposer");
  Expect(IsInterposer(dlsym(RTLD_NEXT, "cuMemGetInfo_v2")),
         "RTLD_NEXT of the program does not give the interposer");
  Expect(IsFence(dlsym(RTLD_NEXT, "cuMemAlloc_v2")),
         "RTLD_NEXT of the program does not give the fence");
  // Twice by the same thread, which one well-known library answers with NULL.
  Expect(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == dlsym(RTLD_NEXT, "cuMemAlloc_v2"),
         "the second look-up differs");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
