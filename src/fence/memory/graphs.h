// Memory of graphs: allocation nodes take card memory when their graph is first uploaded or
// launched, and keep it until it is trimmed. Charged by what the driver says the graphs of the card
// have reserved.
//
// What a launch may take is reserved before. The addresses of a graph's nodes say how much that is:
// each is backed once, and the driver gives two nodes one address only where the edges between them
// let the first end before the second begins. An executable graph that was launched since graph
// memory was last trimmed finds what it needs in what the card's graphs have.
//
// Thread safety: every function from any thread; no lock is held across a driver call.
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/underway.h"
#include "real.h"

namespace tessera::fence {

inline constexpr int kGraphDevices = 64;

namespace detail {
// The gate's word, once the gate knows it and as long as no graph has memory; a constant 1
// otherwise.
extern const std::uint32_t* g_launch_word;
}  // namespace detail

// Bytes that the allocation nodes of a graph may need at once on each device (an upper bound).
struct GraphNeed {
  std::uint64_t bytes[kGraphDevices] = {};
  std::uint64_t devices = 0;  // a bit for each that has bytes
  bool unknown = false;       // nobody could add it up: nothing is granted
  bool Any() const { return devices != 0 || unknown; }
};
GraphNeed NeedOf(CUgraph graph);

struct GraphExec {
  bool known = false;     // has allocation nodes
  bool launched = false;  // since graph memory was last trimmed
  GraphNeed need;
};
// Remembers what an executable graph needs; false when there is no memory for it.
bool NoteExec(CUgraphExec exec, const GraphExec& noted);
void ForgetExec(CUgraphExec exec);
GraphExec FindExec(CUgraphExec exec);
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
// Makes the charge what the driver has reserved for graphs on the device.
void SettleGraphs(CUdevice device);
void SettleAllGraphs();
// Makes the driver give back what graphs hold in vain, and the charge what is left.
CUresult TrimGraphs(CUdevice device);
// Whether graphs are charged what the driver says at this moment.
bool GraphsAgree();

// Around a call that may make the driver reserve memory for an executable graph.
template <typename Call>
CUresult WithGraphMemory(CUgraphExec exec, Call&& call);

namespace detail {
struct GraphReservation {
  std::uint64_t bytes[kGraphDevices] = {};
  int refused_card = -1;
  std::uint64_t refused_bytes = 0;
  bool granted = false;
};
GraphReservation PrepareGraph(const GraphNeed& need, bool launched);
void FinishGraph(const GraphNeed& need, const GraphReservation& reserved);
CUresult RefuseGraph(const GraphReservation& reserved);
void MarkLaunched(CUgraphExec exec);
}  // namespace detail

template <typename Call>
CUresult WithGraphMemory(CUgraphExec exec, Call&& call) {
  if (!GraphMemorySeen()) return call();
  const GraphExec found = FindExec(exec);
  if (!found.known) return call();
  const Underway underway;
  const detail::GraphReservation reserved = detail::PrepareGraph(found.need, found.launched);
  if (!reserved.granted) return detail::RefuseGraph(reserved);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) detail::MarkLaunched(exec);
  detail::FinishGraph(found.need, reserved);
  return result;
}

}  // namespace tessera::fence
