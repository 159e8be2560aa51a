// Checkpointing of this process: what it holds leaves the cards and comes back. Other processes
// cannot be named.
#include <signal.h>
#include <unistd.h>

#include <mutex>

#include "sim/cuda/api.h"
#include "sim/cuda/device.h"

using namespace tessera::sim;

namespace {

constinit std::mutex state_mutex;
constinit CUprocessState state = CU_PROCESS_STATE_RUNNING;
constinit std::uint64_t away[kMaxCards] = {};  // bytes that a checkpoint took off each card

CUresult CheckPid(int pid) {
  if (pid == getpid()) return CUDA_SUCCESS;
  return pid > 0 && kill(pid, 0) == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

// Gives the memory back to the cards; the bytes themselves stay where they are, in pages of the
// host.
void LeaveCards() {
  const int process = OwnProcess();
  for (int card = 0; process >= 0 && card < static_cast<int>(Node()->card_count); ++card) {
    away[card] = HeldBytes(Node()->processes[process].cards[card]);
    if (away[card]) UnchargeCard(card, away[card]);
  }
}

CUresult ReturnToCards() {
  for (int card = 0; card < kMaxCards; ++card) {
    if (!away[card] || ChargeCard(card, away[card])) continue;
    while (--card >= 0)
      if (away[card]) UnchargeCard(card, away[card]);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuCheckpointProcessGetState)(int pid, CUprocessState* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(CheckPid(pid));
  std::lock_guard lock(state_mutex);
  *out = state;
  return CUDA_SUCCESS;
}

SIM_API(cuCheckpointProcessGetRestoreThreadId)(int pid, int* tid) {
  if (!tid) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(CheckPid(pid));
  *tid = pid;  // the main thread: this driver has none of its own
  return CUDA_SUCCESS;
}

SIM_API(cuCheckpointProcessLock)(int pid, CUcheckpointLockArgs*) {
  SIM_TRY(CheckPid(pid));
  std::lock_guard lock(state_mutex);
  if (state != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  state = CU_PROCESS_STATE_LOCKED;
  CloseGate(kGateLocked);
  return CUDA_SUCCESS;
}

SIM_API(cuCheckpointProcessCheckpoint)(int pid, CUcheckpointCheckpointArgs*) {
  SIM_TRY(CheckPid(pid));
  std::lock_guard lock(state_mutex);
  if (state != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  LeaveCards();
  state = CU_PROCESS_STATE_CHECKPOINTED;
  return CUDA_SUCCESS;
}

SIM_API(cuCheckpointProcessRestore)(int pid, CUcheckpointRestoreArgs* arguments) {
  SIM_TRY(CheckPid(pid));
  if (arguments && arguments->gpuPairsCount) return CUDA_ERROR_NOT_SUPPORTED;  // onto other cards
  std::lock_guard lock(state_mutex);
  if (state != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  SIM_TRY(ReturnToCards());
  state = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

SIM_API(cuCheckpointProcessUnlock)(int pid, CUcheckpointUnlockArgs*) {
  SIM_TRY(CheckPid(pid));
  std::lock_guard lock(state_mutex);
  if (state != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  state = CU_PROCESS_STATE_RUNNING;
  OpenGate(kGateLocked);
  return CUDA_SUCCESS;
}
