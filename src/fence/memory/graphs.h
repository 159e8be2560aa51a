// Memory of graphs: allocation nodes take card memory when their graph is first uploaded or
// launched, and keep it until it is trimmed. Charged by what the driver says the graphs of the card
// have reserved.
//
// Thread safety: every function from any thread; no lock is held across a driver call.
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/underway.h"
#include "real.h"

namespace tessera::fence {

namespace detail {
// The gate's word, once the gate knows it and as long as no graph has memory; a constant 1
// otherwise.
extern const std::uint32_t* g_launch_word;
}  // namespace detail

// Bytes that the allocation nodes of a graph may need at once (an upper bound), 0 where it has
// none.
struct GraphNeed {
  std::uint64_t sum = 0;   // of all nodes
  std::uint64_t peak = 0;  // where each free node is taken into account in the order of creation
  CUdevice device = -1;
};
GraphNeed NeedOf(CUgraph graph);
// Remembers what an executable graph needs; forgets it.
void NoteExec(CUgraphExec exec, const GraphNeed& need);
void ForgetExec(CUgraphExec exec);
// True once a graph with allocation nodes exists: until then a launch need not look further.
bool GraphMemorySeen();
// True while a launch may go straight to the driver: no graph has memory of its own and the gate is
// open. One load of a pointer, one of the word that it points to.
inline bool LaunchesAreFree() {
  const std::uint32_t* word =
      std::atomic_ref(detail::g_launch_word).load(std::memory_order_relaxed);
  return __atomic_load_n(word, __ATOMIC_RELAXED) == 0;
}
// After a launch has passed the gate: later ones may be free.
void FreeLaunches();
bool FindExec(CUgraphExec exec, GraphNeed* need);
// Makes the charge what the driver has reserved for graphs on the device.
void SettleGraphs(CUdevice device);
void SettleAllGraphs();
// Whether graphs are charged what the driver says at this moment.
bool GraphsAgree();

// Around a call that may make the driver reserve memory for an executable graph.
template <typename Call>
CUresult WithGraphMemory(CUgraphExec exec, Call&& call);

namespace detail {
// False when the memory cannot be granted.
bool PrepareGraph(const GraphNeed& need, std::uint64_t* reserved);
void FinishGraph(const GraphNeed& need, std::uint64_t reserved);
CUresult RefuseGraph(const GraphNeed& need);
}  // namespace detail

template <typename Call>
CUresult WithGraphMemory(CUgraphExec exec, Call&& call) {
  GraphNeed need;
  if (!FindExec(exec, &need)) return call();
  const Underway underway;
  std::uint64_t reserved = 0;
  if (!detail::PrepareGraph(need, &reserved)) return detail::RefuseGraph(need);
  const CUresult result = call();
  detail::FinishGraph(need, reserved);
  return result;
}

}  // namespace tessera::fence
