// cuInit and what needs nothing else.
#include <pthread.h>

#include <mutex>

#include "sim/cuda/api.h"
#include "sim/cuda/context.h"
#include "sim/cuda/device.h"
#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

constinit std::mutex init_mutex;
constinit bool initialised = false;

// A child of a process that used the driver gets NOT_INITIALIZED from everything, cuInit included
// (CUDA C++ Programming Guide, "CUDA contexts do not survive fork").
void InChild() {
  if (gate_word.load() & kGateNotInitialised) {
    ForgetProcessAfterFork();
    return;
  }
  CloseGate(kGateForked);
  ForgetProcessAfterFork();
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuInit)(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (gate_word.load() & kGateForked) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard lock(init_mutex);
  if (initialised) return CUDA_SUCCESS;
  NodeState* node = AttachNode();
  if (!node) return CUDA_ERROR_NO_DEVICE;
  SIM_TRY(InitDevices(*node));
  InitContexts();
  pthread_atfork(nullptr, nullptr, InChild);
  initialised = true;
  OpenGate(kGateNotInitialised);
  return CUDA_SUCCESS;
}

SIM_API(cuDriverGetVersion)(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  const NodeState* node = AttachNode();
  *version = node ? static_cast<int>(node->driver_version_cuda) : CUDA_VERSION;
  return CUDA_SUCCESS;
}
