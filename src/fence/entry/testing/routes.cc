// Proves, in a process with the fence preloaded and no slice, that every function of the headers
// comes out of every route as the fence's wrapper (hooked) or as the driver's own function (passed
// on), and that the wrapper reaches the right one: the fake driver's functions return their own
// number.
//
//   fence_routes ROUTE DIRECTORY-OF-THE-FAKE-DRIVER
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

enum Lib { cuda, nvml };
struct Entry {
  const char* name;
  int id;
  bool hooked;
  Lib library;
  int since;
  bool per_thread;
  const char* base;
};
constexpr Entry kEntries[] = {
#define ENTRY(name, id, hooked, library, since, per_thread, base) \
  {#name, id, bool(hooked), library, since, bool(per_thread), #base},
#include "entries.inc"
#undef ENTRY
};

int failures = 0;
int checks = 0;

void Expect(bool ok, const char* what, const char* name) {
  ++checks;
  if (ok) return;
  ++failures;
  std::printf("FAIL %s: %s\n", name, what);
}

bool IsFence(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libtessera.so") != nullptr;
}

bool HasNumber(const char* name) {
  return std::strncmp(name, "cuGetProcAddress", 16) != 0 &&
         std::strcmp(name, "nvmlErrorString") != 0;
}

// The wrapper or the driver's function, and what a call of it returns (every argument 0).
void CheckPointer(const Entry& entry, void* function) {
  Expect(function != nullptr, "not found", entry.name);
  if (function == nullptr) return;
  Expect(IsFence(function) == entry.hooked,
         entry.hooked ? "not the wrapper" : "hooked, should be passed on", entry.name);
  if (!HasNumber(entry.name)) return;
  using Call = int (*)(long, long, long, long, long, long, long, long, long, long, long, long);
  const int got = reinterpret_cast<Call>(function)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  if (got != entry.id) std::printf("  got %d, expected %d\n", got, entry.id);
  Expect(got == entry.id, "the call did not reach the driver's function", entry.name);
}

void* OpenFake(const std::string& directory, Lib library, int flags, bool absolute) {
  const char* name = library == cuda ? "libcuda.so.1" : "libnvidia-ml.so.1";
  void* handle = dlopen(absolute ? (directory + "/" + name).c_str() : name, RTLD_NOW | flags);
  if (handle == nullptr) std::printf("FAIL dlopen: %s\n", dlerror()), std::exit(1);
  return handle;
}

void CheckDlsym(void* cuda_handle, void* nvml_handle) {
  for (const Entry& entry : kEntries) {
    CheckPointer(entry, dlsym(entry.library == cuda ? cuda_handle : nvml_handle, entry.name));
  }
  Expect(dlsym(cuda_handle, "cuNoSuchFunction") == nullptr, "an unknown name is found",
         "cuNoSuchFunction");
  Expect(dlerror() != nullptr, "no error for an unknown name", "cuNoSuchFunction");
}

void CheckDlvsym(void* cuda_handle, void* nvml_handle) {
  for (const Entry& entry : kEntries) {
    void* plain = dlsym(entry.library == cuda ? cuda_handle : nvml_handle, entry.name);
    void* versioned =
        dlvsym(entry.library == cuda ? cuda_handle : nvml_handle, entry.name, "ANY_1.0");
    Expect(versioned == nullptr || versioned == plain, "dlvsym and dlsym differ", entry.name);
    if (versioned != nullptr) CheckPointer(entry, versioned);
  }
}

using Gpa2 = int (*)(const char*, void**, int, unsigned long long, int*);
using Gpa1 = int (*)(const char*, void**, int, unsigned long long);

// The driver's answer for the same question, asked behind the fence's back, gives what has to come
// out: what dlsym gives for that symbol (which CheckDlsym has proved).
void CheckProcAddress(void* handle, Gpa2 gpa) {
  const auto direct = reinterpret_cast<Gpa1>(dlsym(handle, "fake_get_proc_address"));
  const auto address = reinterpret_cast<void* (*)(const char*)>(dlsym(handle, "fake_address"));
  std::map<void*, void*> expected_of;
  for (const Entry& entry : kEntries) {
    if (entry.library == cuda) expected_of[address(entry.name)] = dlsym(handle, entry.name);
  }
  for (const Entry& entry : kEntries) {
    if (entry.library != cuda) continue;
    for (int version :
         {entry.since, entry.since - 1, entry.since + 5, 11000, 12000, 12080, 13000, 14000}) {
      for (unsigned long long flags : {0ull, 1ull, 2ull}) {
        void* expected = nullptr;
        const int expected_result = direct(entry.base, &expected, version, flags);
        void* got = nullptr;
        int status = 77;
        const int result = gpa(entry.base, &got, version, flags, &status);
        Expect(result == expected_result, "another result than the driver's", entry.base);
        Expect(status != 77, "status is not written", entry.base);
        Expect(got == (result == 0 ? expected_of.at(expected) : nullptr),
               "another function than dlsym's", entry.base);
      }
    }
  }
  void* none = &failures;
  int status = 77;
  Expect(gpa("cuNoSuchFunction", &none, 13000, 0, &status) == 500 && status == 1, "unknown name",
         "cuGetProcAddress");
  Expect(gpa("", &none, 0, 0, nullptr) == 500, "the runtime's probe with an empty name",
         "cuGetProcAddress");
  Expect(gpa(nullptr, &none, 13000, 0, &status) == 1, "NULL name", "cuGetProcAddress");
  Expect(gpa("cuInit", nullptr, 13000, 0, &status) == 1, "NULL result", "cuGetProcAddress");
}

void ProcAddressRoutes(void* handle) {
  const auto first = reinterpret_cast<Gpa2>(dlsym(handle, "cuGetProcAddress_v2"));
  CheckProcAddress(handle, first);
  void* second = nullptr;
  first("cuGetProcAddress", &second, 12000, 0, nullptr);
  CheckProcAddress(handle, reinterpret_cast<Gpa2>(second));
  // The 4-argument form of 11.3: a fifth argument must not be touched.
  void* old = nullptr;
  first("cuGetProcAddress", &old, 11030, 0, nullptr);
  Expect(old == dlsym(handle, "cuGetProcAddress"), "11030 is not the 4-argument form",
         "cuGetProcAddress");
  void* alloc = nullptr;
  reinterpret_cast<Gpa1>(old)("cuMemAlloc", &alloc, 3020, 0);
  Expect(alloc == dlsym(handle, "cuMemAlloc_v2"), "wrong variant by the 4-argument form",
         "cuMemAlloc");
}

int Finish() {
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string route = argv[1];
  const std::string directory = argv[2];
  if (route == "absent") {
    // No driver in the process: as if the fence were not there.
    for (const Entry& entry : kEntries) {
      Expect(dlsym(RTLD_DEFAULT, entry.name) == nullptr, "RTLD_DEFAULT finds it without a driver",
             entry.name);
      Expect(dlsym(RTLD_NEXT, entry.name) == nullptr, "RTLD_NEXT finds it without a driver",
             entry.name);
      Expect(dlvsym(RTLD_DEFAULT, entry.name, "X") == nullptr, "dlvsym finds it without a driver",
             entry.name);
      static void* program = dlopen(nullptr, RTLD_NOW);
      Expect(dlsym(program, entry.name) == nullptr, "dlopen(NULL) finds it without a driver",
             entry.name);
    }
    return Finish();
  }
  if (route == "namespace") {
    void* handle = dlmopen(LM_ID_NEWLM, (directory + "/libcuda.so.1").c_str(), RTLD_NOW);
    if (handle == nullptr) return std::printf("FAIL dlmopen: %s\n", dlerror()), 1;
    void* management = dlmopen(LM_ID_NEWLM, (directory + "/libnvidia-ml.so.1").c_str(), RTLD_NOW);
    CheckDlsym(handle, management);
    ProcAddressRoutes(handle);
    return Finish();
  }
  const bool global = route == "global";
  const int flags = global ? RTLD_GLOBAL : RTLD_LOCAL;
  void* handle = OpenFake(directory, cuda, flags, route == "absolute");
  void* management = OpenFake(directory, nvml, flags, route == "absolute");
  if (global) {
    CheckDlsym(RTLD_DEFAULT, management);
    CheckDlsym(handle, RTLD_NEXT);
    void* program = dlopen(nullptr, RTLD_NOW);
    CheckDlsym(handle, program);
  } else if (route == "local" || route == "absolute") {
    CheckDlsym(handle, management);
    CheckDlvsym(handle, management);
    Expect(dlsym(management, "cuInit") == nullptr, "found in the wrong library", "cuInit");
    Expect(dlsym(RTLD_DEFAULT, "cuInit") == nullptr, "RTLD_DEFAULT finds a local driver", "cuInit");
  } else if (route == "reopen") {
    void* before = dlsym(handle, "cuMemAlloc_v2");
    CheckDlsym(handle, management);
    dlclose(handle);
    dlclose(management);
    handle = OpenFake(directory, cuda, flags, false);
    management = OpenFake(directory, nvml, flags, false);
    Expect(dlsym(handle, "cuMemAlloc_v2") == before, "the wrapper moved", "cuMemAlloc_v2");
    CheckDlsym(handle, management);
  } else if (route == "procaddress") {
    CheckDlsym(handle, management);
    ProcAddressRoutes(handle);
  } else {
    return 2;
  }
  return Finish();
}
