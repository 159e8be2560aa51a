// What every exported call passes first. Two loads when nothing is to be done.
#pragma once

#include <atomic>
#include <cstdint>

#include "sim/cuda/cuda_abi.h"

namespace tessera::sim {

// Why calls are held; 0 = go on.
inline constexpr std::uint32_t kGateNotInitialised = 1;
inline constexpr std::uint32_t kGateForked =
    2;  // child of a process that had called cuInit: for good
inline constexpr std::uint32_t kGateLocked = 4;  // cuCheckpointProcessLock: calls wait

extern std::atomic<std::uint32_t> gate_word;
// Number of faults that are set in the node. Points at a constant 1 until the node is mapped.
extern std::atomic<const std::atomic<std::uint32_t>*> fault_word;

inline bool Faulty() {
  return __builtin_expect(
      fault_word.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) != 0, 0);
}
inline bool Held() {
  return __builtin_expect(gate_word.load(std::memory_order_relaxed) != 0, 0) || Faulty();
}

// The slow part: CUDA_SUCCESS when the call may go on.
CUresult PassGate(const char* call, bool before_init);

// Opens (after cuInit) or sets reasons to hold.
void OpenGate(std::uint32_t reason);
void CloseGate(std::uint32_t reason);

// Per-thread default stream forms.
inline CUstream PerThread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

// While alive, stream 0 of this thread means its per-thread default stream (for calls without a
// stream parameter).
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() : before_(active_) { active_ = true; }
  ~PerThreadDefaultStream() { active_ = before_; }
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
  // The stream that a call without one uses.
  static CUstream Default() { return active_ ? CU_STREAM_PER_THREAD : nullptr; }

 private:
  static thread_local constinit bool active_;
  bool before_;
};

}  // namespace tessera::sim
