// Launches: checking them, what they cost, and running kernels' stand-ins on the host.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/cuda/module.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {

// A launch with its parameters copied, as graphs keep it.
struct KernelCall {
  CUfunction function{};  // as given: may be a CUkernel
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared = 0;
  CUcontext context{};
  bool is_kernel = false;  // given as CUkernel in the node's `kern`
  bool cooperative = false;
  std::vector<std::uint8_t> bytes;   // parameters one after the other
  std::vector<std::size_t> offsets;  // of each parameter in `bytes`
  std::vector<void*> pointers;       // as given, when the layout is not known
  std::vector<std::uint8_t> packed;  // CU_LAUNCH_PARAM_BUFFER_POINTER
  std::map<int, CUlaunchAttributeValue> attributes;

  // Argument list for the stand-in; valid until the call changes.
  std::vector<void*> Arguments() const;
};

struct LaunchShape {
  unsigned grid[3], block[3];
  unsigned shared = 0;
  unsigned cluster[3] = {0, 0, 0};
  bool cooperative = false;
};

// CUDA_SUCCESS when a card of the function's context takes this launch.
CUresult CheckLaunch(const Function& function, const LaunchShape& shape);

// Copies parameters by the function's layout. INVALID_VALUE when both or a malformed `extra` are
// given.
CUresult CopyArguments(const Function& function, void** params, void** extra, KernelCall* call);

// Nanoseconds of a kernel: TESSERA_SIM_KERNELS ("name:us,prefix*:us"), else the node's default.
std::uint64_t KernelDuration(std::string_view name);

// Blocks of the function that fit on a multiprocessor at once; 0 when none does.
int BlocksPerMultiprocessor(const Function& function, int block_size, std::size_t dynamic_shared);

}  // namespace tessera::sim
