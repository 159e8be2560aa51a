// Graphs that hold memory of their own. A launch in a process without any costs what a kernel
// launch costs.
#include "compute/gate.h"
#include "memory/graphs.h"
#include "memory/live.h"
#include "memory/underway.h"
#include "real.h"

namespace tessera::fence {
namespace {

template <typename Make>
CUresult MakeExec(CUgraphExec* out, CUgraph graph, Make&& make) {
  if (!Fenced() || out == nullptr) return make();
  const GraphNeed need = NeedOf(graph);
  if (!need.Any()) return make();
  const Underway underway;
  const detail::GraphReservation reserved = detail::PrepareGraph(need, false);
  if (!reserved.granted) return detail::RefuseGraph(reserved);
  const CUgraphExec former = *out;
  CUresult result = make();
  if (result == CUDA_SUCCESS && !NoteExec(*out, {.known = true, .launched = false, .need = need})) {
    real::cuGraphExecDestroy(*out);
    *out = former;
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  detail::FinishGraph(need, reserved);
  return result;
}

[[gnu::noinline, gnu::cold]] CUresult Launch(CUgraphExec exec, CUstream stream,
                                             CUresult (*launch)(CUgraphExec, CUstream)) {
  PassGate();
  FreeLaunches();
  if (!GraphMemorySeen()) return launch(exec, stream);
  return WithGraphMemory(exec, [&] { return launch(exec, stream); });
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error, char* log,
                                    size_t bytes) {
  return MakeExec(exec, graph,
                  [&] { return real::cuGraphInstantiate(exec, graph, error, log, bytes); });
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error,
                                       char* log, size_t bytes) {
  return MakeExec(exec, graph,
                  [&] { return real::cuGraphInstantiate_v2(exec, graph, error, log, bytes); });
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                             unsigned long long flags) {
  return MakeExec(exec, graph,
                  [&] { return real::cuGraphInstantiateWithFlags(exec, graph, flags); });
}
CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return MakeExec(exec, graph,
                  [&] { return real::cuGraphInstantiateWithParams(exec, graph, params); });
}
CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return MakeExec(exec, graph,
                  [&] { return real::cuGraphInstantiateWithParams_ptsz(exec, graph, params); });
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(exec, [&] { return real::cuGraphUpload(exec, stream); });
}
CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(exec, [&] { return real::cuGraphUpload_ptsz(exec, stream); });
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (LaunchesAreFree()) return real::cuGraphLaunch(exec, stream);
  return Launch(exec, stream, real::cuGraphLaunch);
}
CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  if (LaunchesAreFree()) return real::cuGraphLaunch_ptsz(exec, stream);
  return Launch(exec, stream, real::cuGraphLaunch_ptsz);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  const GraphExec found = FindExec(exec);
  if (found.known) ForgetExec(exec);  // before the driver may give the handle to another graph
  const CUresult result = real::cuGraphExecDestroy(exec);
  if (found.known && result != CUDA_SUCCESS) NoteExec(exec, found);
  if (found.known && result == CUDA_SUCCESS) {
    for (std::uint64_t left = found.need.devices; left != 0; left &= left - 1)
      SettleGraphs(__builtin_ctzll(left));
  }
  return result;
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  return Fenced() ? TrimGraphs(device) : real::cuDeviceGraphMemTrim(device);
}

}  // extern "C"
