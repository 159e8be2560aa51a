// Nodes that do no work of a card: host functions, child graphs, nothing, conditions.
#include "sim/cuda/api.h"
#include "sim/cuda/graph_nodes.h"

using namespace tessera::sim;

namespace {

struct HostKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_HOST;
  using Params = CUDA_HOST_NODE_PARAMS;
  static CUresult Read(const Params& host, CUcontext, NodeParams* read) {
    return ReadHost(host.fn, host.userData, read);
  }
  static CUresult Write(const GraphNode& node, Params* host) {
    *host = node.params.host;
    return CUDA_SUCCESS;
  }
};

}  // namespace

SIM_API(cuGraphAddHostNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                            std::size_t count, const CUDA_HOST_NODE_PARAMS* host) {
  return AddKind<HostKind>(handle, graph, nodes, count, host);
}
SIM_API(cuGraphHostNodeGetParams)(CUgraphNode node, CUDA_HOST_NODE_PARAMS* host) {
  return GetKind<HostKind>(node, host);
}
SIM_API(cuGraphHostNodeSetParams)(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* host) {
  return SetKind<HostKind>(node, host);
}
SIM_API(cuGraphExecHostNodeSetParams)(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* host) {
  return SetExecKind<HostKind>(exec, node, host);
}

SIM_API(cuGraphAddChildGraphNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                  std::size_t count, CUgraph child) {
  NodeParams read;
  SIM_TRY(ReadChild(child, &read));
  return AddGraphNode(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphChildGraphNodeGetGraph)(CUgraphNode handle, CUgraph* child) {
  GraphNode* node = nullptr;
  if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_GRAPH, &node));
  *child = node->params.child->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddEmptyNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                             std::size_t count) {
  return AddGraphNode(handle, graph, nodes, nullptr, count, NodeParams());
}

SIM_API(cuGraphConditionalHandleCreate)(CUgraphConditionalHandle* handle, CUgraph graph_handle,
                                        CUcontext, unsigned default_value, unsigned flags) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  if (handle == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto* conditional = new Conditional;
  conditional->graph_id = graph->id;
  conditional->default_value = default_value;
  conditional->flags = flags;
  conditional->handle = NewHandle(conditional);
  std::lock_guard lock(GraphMutex());
  graph->conditionals.push_back(conditional->handle);
  *handle = conditional->handle;
  return CUDA_SUCCESS;
}
