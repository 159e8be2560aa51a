// What the programs of this folder have in common: a context on card 0, one line on stdout, the end
// of stdin.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace tessera::hostile {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline void Say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

// Ends the program where a call that must succeed does not.
inline void Must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", call, static_cast<int>(result));
  std::fflush(stdout);
  std::_Exit(4);
}

inline CUcontext OpenCard() {
  CUcontext context = nullptr;
  Must(cuInit(0), "cuInit");
  Must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return context;
}

inline void WaitForEndOfInput() {
  for (char byte; read(STDIN_FILENO, &byte, 1) > 0;) {
  }
}

}  // namespace tessera::hostile
