// The gate: the word in the policy that lets a slice's work through or holds it at a launch.
//
// Every launch function is a generated thunk (LAUNCH_THUNK in entry/arch): load the pointer,
// compare the word with 0, jump to the driver; where it is not 0, to launch.cc. A wrapper of
// another family that launches work calls PassGate() first.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {
// Points to the word of the slice's only card; to a constant 0 where nothing can hold this process;
// to a constant 1 before the first launch, where several cards make the slow path choose the word,
// and while launches are watched.
[[gnu::visibility("hidden")]] extern const std::uint32_t* tessera_gate_word;
// Returns when the gate is open, or is not guarded any more (heartbeat older than 1 s, or none).
[[gnu::visibility("hidden")]] void tessera_wait_at_gate();
}

namespace tessera::fence {

// An agent whose last beat is older than this is gone: nobody would open a gate any more.
inline constexpr std::uint64_t kHeartStopsNs = 1'000'000'000;

// While they are watched, every launch takes the slow path: it may have to load the kernel's code.
// Otherwise one instruction decides that it need not.
void WatchLaunches(bool watch);
bool LaunchesAreWatched();

inline void PassGate() {
  const std::uint32_t* word = std::atomic_ref(tessera_gate_word).load(std::memory_order_relaxed);
  if (std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_relaxed) != 0) {
    tessera_wait_at_gate();
  }
}

}  // namespace tessera::fence
