// The driver's functions by name, for test programs that must choose how they reach each of them.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <string>
#include <vector>

namespace tessera::testing {

// How a program comes by a driver function.
enum class Route {
  kLinked,
  kDlsym,
  kDlvsym,
  kProcAddress11000,
  kProcAddress12000,
  kProcAddress12080,
  kProcAddress13000
};

inline constexpr Route kRoutes[] = {Route::kLinked,           Route::kDlsym,
                                    Route::kDlvsym,           Route::kProcAddress11000,
                                    Route::kProcAddress12000, Route::kProcAddress12080,
                                    Route::kProcAddress13000};

const char* RouteName(Route route);

// The function `symbol` ("cuMemAlloc_v2", "cuMemAllocAsync_ptsz") by `route`; nullptr when this
// route does not lead there, as cuGetProcAddress at a version that has another form of the
// function.
void* FindFunction(const std::string& symbol, Route route);

// By plain dlsym; ends the program when the driver has no such function.
void* NeedFunction(const char* symbol);

template <typename Function>
Function* Need(const char* symbol) {
  return reinterpret_cast<Function*>(NeedFunction(symbol));
}

}  // namespace tessera::testing

// DRIVER(cuMemAlloc_v2)(&pointer, bytes): a call by plain dlsym, resolved once.
#define DRIVER(name)                                                         \
  (*[] {                                                                     \
    static auto* function = ::tessera::testing::Need<decltype(name)>(#name); \
    return function;                                                         \
  }())
