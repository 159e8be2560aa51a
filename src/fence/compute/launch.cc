// The slow path of every launch: waits at the gate, and loads the library of the kernel where that
// is still to be done (memory/libraries.h). The thunks jump here with the program's arguments.
#include "compute/gate.h"
#include "memory/libraries.h"
#include "memory/private_copy.h"
#include "real.h"

namespace tessera::fence {
namespace {

constexpr unsigned kMostDevices = 64;  // of a machine, and so of a launch on several

template <typename Launch>
CUresult Held(CUfunction function, CUstream stream, Launch&& launch) {
  tessera_wait_at_gate();
  if (LaunchesAreWatched()) {
    if (const CUresult loaded = LoadForLaunch(function, stream); loaded != CUDA_SUCCESS)
      return loaded;
  }
  return launch();
}

CUresult HeldEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra,
                decltype(real::cuLaunchKernelEx) launch) {
  if (config == nullptr)
    return Held(function, nullptr, [&] { return launch(config, function, parameters, extra); });
  const PrivateCopy own(config);
  return Held(function, own->hStream,
              [&] { return launch(own.get(), function, parameters, extra); });
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

#pragma GCC visibility push(hidden)
extern "C" {

#define KERNEL_ARGUMENTS                                                                    \
  CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
      unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters
#define KERNEL_VALUES \
  function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters

CUresult tessera_held_cuLaunchKernel(KERNEL_ARGUMENTS, void** extra) {
  return Held(function, stream, [&] { return real::cuLaunchKernel(KERNEL_VALUES, extra); });
}
CUresult tessera_held_cuLaunchKernel_ptsz(KERNEL_ARGUMENTS, void** extra) {
  return Held(function, stream, [&] { return real::cuLaunchKernel_ptsz(KERNEL_VALUES, extra); });
}
CUresult tessera_held_cuLaunchCooperativeKernel(KERNEL_ARGUMENTS) {
  return Held(function, stream, [&] { return real::cuLaunchCooperativeKernel(KERNEL_VALUES); });
}
CUresult tessera_held_cuLaunchCooperativeKernel_ptsz(KERNEL_ARGUMENTS) {
  return Held(function, stream,
              [&] { return real::cuLaunchCooperativeKernel_ptsz(KERNEL_VALUES); });
}

#undef KERNEL_ARGUMENTS
#undef KERNEL_VALUES

CUresult tessera_held_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                       void** parameters, void** extra) {
  return HeldEx(config, function, parameters, extra, real::cuLaunchKernelEx);
}
CUresult tessera_held_cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function,
                                            void** parameters, void** extra) {
  return HeldEx(config, function, parameters, extra, real::cuLaunchKernelEx_ptsz);
}
CUresult tessera_held_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches,
                                                           unsigned count, unsigned flags) {
  CUDA_LAUNCH_PARAMS own[kMostDevices];
  tessera_wait_at_gate();
  if (LaunchesAreWatched() && launches != nullptr) {
    if (count > kMostDevices) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      own[i] = *PrivateCopy(&launches[i]);
      const CUresult loaded = LoadForLaunch(own[i].function, own[i].hStream);
      if (loaded != CUDA_SUCCESS) return loaded;
    }
    launches = own;
  }
  return real::cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
}
CUresult tessera_held_cuLaunch(CUfunction function) {
  return Held(function, nullptr, [&] { return real::cuLaunch(function); });
}
CUresult tessera_held_cuLaunchGrid(CUfunction function, int width, int height) {
  return Held(function, nullptr, [&] { return real::cuLaunchGrid(function, width, height); });
}
CUresult tessera_held_cuLaunchGridAsync(CUfunction function, int width, int height,
                                        CUstream stream) {
  return Held(function, stream,
              [&] { return real::cuLaunchGridAsync(function, width, height, stream); });
}

}  // extern "C"
#pragma GCC visibility pop
