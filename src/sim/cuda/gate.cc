#include "sim/cuda/gate.h"

#include <cstring>
#include <ctime>

#include "sim/cuda/context.h"
#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

constinit std::atomic<std::uint32_t> not_yet_mapped{1};

// Errors after which a context answers every call with the same error (CUDA driver API, "CUresult":
// "the context is left in an inconsistent state ... the process must be terminated and
// relaunched").
bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
      return true;
    default:
      return false;
  }
}

}  // namespace

constinit std::atomic<std::uint32_t> gate_word{kGateNotInitialised};
constinit std::atomic<const std::atomic<std::uint32_t>*> fault_word{&not_yet_mapped};
thread_local constinit bool PerThreadDefaultStream::active_ = false;

void OpenGate(std::uint32_t reason) { gate_word.fetch_and(~reason, std::memory_order_release); }
void CloseGate(std::uint32_t reason) { gate_word.fetch_or(reason, std::memory_order_release); }

CUresult PassGate(const char* call, bool before_init) {
  if (fault_word.load(std::memory_order_relaxed) == &not_yet_mapped)
    if (NodeState* node = AttachNode()) fault_word.store(&node->fault_count);
  std::uint32_t gate = gate_word.load(std::memory_order_acquire);
  if (!before_init && (gate & (kGateNotInitialised | kGateForked)))
    return CUDA_ERROR_NOT_INITIALIZED;
  const bool may_unlock = std::strncmp(call, "cuCheckpoint", 12) == 0;
  while (!before_init && !may_unlock && (gate & kGateLocked)) {
    timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
    gate = gate_word.load(std::memory_order_acquire);
  }
  if (fault_word.load(std::memory_order_relaxed) == &not_yet_mapped || !Faulty())
    return CUDA_SUCCESS;
  Context* current = CurrentContextOrNull();
  const auto result = static_cast<CUresult>(InjectedFault(call, current ? current->card : -1));
  if (current && IsSticky(result)) current->Poison(result);
  return result;
}

}  // namespace tessera::sim
