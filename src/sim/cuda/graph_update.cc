// Changing executable graphs to what another graph says.
#include <algorithm>
#include <map>
#include <vector>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"

namespace tessera::sim {
namespace {

CUgraphExecUpdateResult Compare(const GraphNode& have, const GraphNode& want) {
  if (have.params.type != want.params.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  switch (have.params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (have.params.kernel.context != want.params.kernel.context)
        return CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED;
      if (have.params.kernel.cooperative != want.params.kernel.cooperative) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
      }
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      if (have.params.alloc.bytesize != want.params.alloc.bytesize ||
          have.params.alloc.dptr != want.params.alloc.dptr) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      }
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (have.params.freed != want.params.freed)
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (have.params.conditional_type != want.params.conditional_type ||
          have.params.bodies.size() != want.params.bodies.size()) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
      }
      break;
    default:
      break;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

struct Difference {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const GraphNode* node = nullptr;
  const GraphNode* from = nullptr;
};

// Pairs the nodes of two graphs in their order; the first difference that an update cannot take.
Difference Match(Graph& have, Graph& want, std::vector<std::pair<GraphNode*, GraphNode*>>* pairs) {
  std::vector<GraphNode*> old_order, new_order;
  InOrder(have, &old_order);
  InOrder(want, &new_order);
  if (old_order.size() != new_order.size()) {
    const GraphNode* extra =
        new_order.size() > old_order.size() ? new_order[old_order.size()] : nullptr;
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, extra, nullptr};
  }
  std::map<const GraphNode*, std::size_t> old_index, new_index;
  for (std::size_t i = 0; i < old_order.size(); ++i) {
    old_index[old_order[i]] = new_index[new_order[i]] = i;
  }
  for (std::size_t i = 0; i < old_order.size(); ++i) {
    GraphNode &a = *old_order[i], &b = *new_order[i];
    std::vector<std::size_t> edges_a, edges_b;
    for (const GraphEdge& edge : a.before) edges_a.push_back(old_index[edge.node]);
    for (const GraphEdge& edge : b.before) edges_b.push_back(new_index[edge.node]);
    std::sort(edges_a.begin(), edges_a.end());
    std::sort(edges_b.begin(), edges_b.end());
    if (edges_a != edges_b) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &b, nullptr};
    const CUgraphExecUpdateResult differs = Compare(a, b);
    if (differs != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {differs, &b, nullptr};
    if (a.params.child != nullptr) {
      const Difference inner = Match(*a.params.child, *b.params.child, pairs);
      if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inner;
    }
    for (std::size_t body = 0; body < a.params.bodies.size(); ++body) {
      const Difference inner = Match(*a.params.bodies[body], *b.params.bodies[body], pairs);
      if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inner;
    }
    pairs->emplace_back(&a, &b);
  }
  return {};
}

void TakeOver(GraphNode& to, GraphNode& from) {
  // Structure stays with the executable graph: only what an update may change moves over.
  to.origin = &from;
  to.origin_number = from.origin_number;
  switch (from.params.type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return;
    default:
      to.params = from.params.Clone();
  }
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuGraphExecUpdate_v2)(CUgraphExec handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo* info) {
  GraphExec* exec = Find<GraphExec>(handle);
  Graph* graph = nullptr;
  if (exec == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  SIM_TRY(FindGraph(graph_handle, &graph));
  std::lock_guard launch(exec->mutex);
  std::lock_guard lock(GraphMutex());
  std::vector<std::pair<GraphNode*, GraphNode*>> pairs;
  const Difference difference = Match(*exec->graph, *graph, &pairs);
  info->result = difference.result;
  info->errorNode = difference.node != nullptr ? difference.node->handle : nullptr;
  info->errorFromNode = difference.from != nullptr ? difference.from->handle : nullptr;
  if (difference.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (auto& [to, from] : pairs) TakeOver(*to, *from);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecUpdate)(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult updated = impl_cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return updated;
}

SIM_API(cuGraphExecChildGraphNodeSetParams)(CUgraphExec exec_handle, CUgraphNode handle,
                                            CUgraph child_handle) {
  GraphExec* exec = Find<GraphExec>(exec_handle);
  GraphNode* original = Find<GraphNode>(handle);
  Graph* child = nullptr;
  if (exec == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(FindGraph(child_handle, &child));
  std::lock_guard launch(exec->mutex);
  std::lock_guard lock(GraphMutex());
  GraphNode* node = NodeInExec(*exec, *original);
  if (node == nullptr || node->params.child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<GraphNode*, GraphNode*>> pairs;
  if (Match(*node->params.child, *child, &pairs).result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  for (auto& [to, from] : pairs) TakeOver(*to, *from);
  return CUDA_SUCCESS;
}
