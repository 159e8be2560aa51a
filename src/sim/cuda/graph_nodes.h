// What the functions of the node kinds share: finding nodes, reading parameters, putting them in.
#pragma once

#include "sim/cuda/graph.h"

namespace tessera::sim {

CUresult AddGraphNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                      const CUgraphEdgeData* edges, std::size_t count, NodeParams params);
// INVALID_VALUE when there is no such node or it is of another kind.
CUresult NodeOf(CUgraphNode handle, CUgraphNodeType type, GraphNode** node);
// The node of an executable graph that stands for `handle`.
CUresult ExecNodeOf(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type, GraphNode** node);
// The context that a node names, or the current one.
CUresult HomeContext(CUcontext handle, Context** context);
// Puts new parameters into a node; what is not theirs stays.
void Replace(GraphNode& node, NodeParams params);

CUresult ReadAlloc(const CUDA_MEM_ALLOC_NODE_PARAMS& from, Context& context, NodeParams* to);
CUresult ReadChild(CUgraph handle, NodeParams* to);
CUresult ReadOps(unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags,
                 NodeParams* to);
CUresult ReadHost(CUhostFn function, void* data, NodeParams* to);
CUresult ReadEvent(CUevent handle, CUgraphNodeType type, NodeParams* to);

// Both shapes of these parameters have the same members.
template <typename Params>
CUresult ReadSignals(const Params& from, NodeParams* to) {
  if (from.numExtSems == 0 || from.extSemArray == nullptr || from.paramsArray == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  to->type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  to->semaphores.assign(from.extSemArray, from.extSemArray + from.numExtSems);
  to->signals.assign(from.paramsArray, from.paramsArray + from.numExtSems);
  return CUDA_SUCCESS;
}

template <typename Params>
CUresult ReadWaits(const Params& from, NodeParams* to) {
  if (from.numExtSems == 0 || from.extSemArray == nullptr || from.paramsArray == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  to->type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  to->semaphores.assign(from.extSemArray, from.extSemArray + from.numExtSems);
  to->waits.assign(from.paramsArray, from.paramsArray + from.numExtSems);
  return CUDA_SUCCESS;
}

// Each kind of node is a struct that says what its calls have in common:
//   kType     the kind
//   Params    what its calls take and give
//   Read      checks parameters and puts them into a node; `context` is what the call names, or the
//             node had
//   Write     the way back; what it points to lives as long as the node
//   Fits      whether a node of an executable graph may take new parameters
struct AnyFits {
  static bool Fits(const GraphNode&, const NodeParams&) { return true; }
};

template <typename Kind>
CUresult AddKind(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes, std::size_t count,
                 const typename Kind::Params* params, CUcontext context = nullptr) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams read;
  if (const CUresult failed = Kind::Read(*params, context, &read)) return failed;
  return AddGraphNode(handle, graph, nodes, nullptr, count, std::move(read));
}

template <typename Kind>
CUresult GetKind(CUgraphNode handle, typename Kind::Params* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* node = nullptr;
  if (const CUresult failed = NodeOf(handle, Kind::kType, &node)) return failed;
  std::lock_guard lock(GraphMutex());
  return Kind::Write(*node, params);
}

template <typename Kind>
CUresult SetKind(CUgraphNode handle, const typename Kind::Params* params) {
  GraphNode* node = nullptr;
  if (const CUresult failed = NodeOf(handle, Kind::kType, &node)) return failed;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams read;
  if (const CUresult failed = Kind::Read(*params, node->params.context, &read)) return failed;
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

template <typename Kind>
CUresult SetExecKind(CUgraphExec exec, CUgraphNode handle, const typename Kind::Params* params,
                     CUcontext context = nullptr) {
  GraphNode* node = nullptr;
  if (const CUresult failed = ExecNodeOf(exec, handle, Kind::kType, &node)) return failed;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams read;
  if (const CUresult failed = Kind::Read(*params, context, &read)) return failed;
  if (!Kind::Fits(*node, read)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

}  // namespace tessera::sim
