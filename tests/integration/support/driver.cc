#include "tests/integration/support/driver.h"

#include <dlfcn.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <utility>

// Filled by the generated table of linked symbols (coverage only); empty elsewhere.
namespace tessera::testing {
__attribute__((weak)) void* LinkedFunction(const std::string&) { return nullptr; }

namespace {

void* Library() {
  static void* handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "driver: %s\n", ::dlerror());
    std::exit(97);
  }
  return handle;
}

// "cuMemAllocAsync_ptsz" -> {"cuMemAllocAsync", per-thread}; "cuMemAlloc_v2" -> {"cuMemAlloc",
// legacy}.
std::pair<std::string, bool> BaseName(std::string symbol) {
  bool per_thread = false;
  for (const char* suffix : {"_ptsz", "_ptds"}) {
    if (symbol.ends_with(suffix)) {
      symbol.resize(symbol.size() - 5);
      per_thread = true;
    }
  }
  if (symbol.size() > 3 && std::isdigit(static_cast<unsigned char>(symbol.back())) != 0 &&
      symbol.compare(symbol.size() - 3, 2, "_v") == 0) {
    symbol.resize(symbol.size() - 3);
  }
  return {symbol, per_thread};
}

// What cuGetProcAddress answers at `version`, if that is `symbol` itself and not another form of
// it.
void* ByProcAddress(const std::string& symbol, int version) {
  static auto* get = Need<decltype(cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  auto [base, per_thread] = BaseName(symbol);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  CUresult result = get(base.c_str(), &found, version,
                        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                   : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                        &status);
  if (result != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS) return nullptr;
  return found == ::dlsym(Library(), symbol.c_str()) ? found : nullptr;
}

}  // namespace

const char* RouteName(Route route) {
  switch (route) {
    case Route::kLinked:
      return "linked";
    case Route::kDlsym:
      return "dlsym";
    case Route::kDlvsym:
      return "dlvsym";
    case Route::kProcAddress11000:
      return "cuGetProcAddress@11000";
    case Route::kProcAddress12000:
      return "cuGetProcAddress@12000";
    case Route::kProcAddress12080:
      return "cuGetProcAddress@12080";
    case Route::kProcAddress13000:
      return "cuGetProcAddress@13000";
  }
  return "?";
}

void* FindFunction(const std::string& symbol, Route route) {
  switch (route) {
    case Route::kLinked:
      return LinkedFunction(symbol);
    case Route::kDlsym:
      return ::dlsym(Library(), symbol.c_str());
    case Route::kDlvsym:
      return ::dlvsym(Library(), symbol.c_str(), "SIMCUDA_1");
    case Route::kProcAddress11000:
      return ByProcAddress(symbol, 11000);
    case Route::kProcAddress12000:
      return ByProcAddress(symbol, 12000);
    case Route::kProcAddress12080:
      return ByProcAddress(symbol, 12080);
    case Route::kProcAddress13000:
      return ByProcAddress(symbol, 13000);
  }
  return nullptr;
}

void* NeedFunction(const char* symbol) {
  void* found = ::dlsym(Library(), symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "driver: no %s\n", symbol);
    std::exit(97);
  }
  return found;
}

}  // namespace tessera::testing
