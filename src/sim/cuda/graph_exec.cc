// Executable graphs: making, ending, and giving them to streams.
#include <algorithm>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Executable graphs that were destroyed while their last launch still runs; guarded by the graph
// mutex.
std::vector<GraphExec*>& Retired() {
  static auto* retired = new std::vector<GraphExec*>;
  return *retired;
}

// Some node's work still is to be carried out.
bool Busy(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    if (node->lane != nullptr && TailOf(*node->lane).pending != nullptr) return true;
    if (node->params.child != nullptr && Busy(*node->params.child)) return true;
    return std::any_of(node->params.bodies.begin(), node->params.bodies.end(),
                       [](const auto& body) { return Busy(*body); });
  });
}

void DeleteRetired() {
  std::lock_guard lock(GraphMutex());
  std::erase_if(Retired(), [](GraphExec* exec) {
    if (!IsDone(exec->last) || Busy(*exec->graph)) return false;
    delete exec;
    return true;
  });
}

bool Acyclic(const Graph& graph) {
  std::vector<GraphNode*> order;
  if (!InOrder(graph, &order)) return false;
  for (const GraphNode* node : order) {
    if (node->params.child != nullptr && !Acyclic(*node->params.child)) return false;
    for (const auto& body : node->params.bodies) {
      if (!Acyclic(*body)) return false;
    }
  }
  return true;
}

CUresult Instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  if (handle == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  DeleteRetired();
  std::lock_guard lock(GraphMutex());
  if (graph->capturing || !Acyclic(*graph)) return CUDA_ERROR_INVALID_VALUE;
  auto* exec = new GraphExec;
  exec->graph = CloneGraph(*graph);
  exec->flags = flags;
  exec->handle = NewHandle(exec);
  if (exec->handle == nullptr) {
    delete exec;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = exec->handle;
  return CUDA_SUCCESS;
}

GraphNode* Search(Graph& graph, const GraphNode& node) {
  for (const auto& own : graph.nodes) {
    if (own->origin == &node || own->origin_number == node.origin_number) return own.get();
    if (own->params.child != nullptr) {
      if (GraphNode* found = Search(*own->params.child, node)) return found;
    }
    for (const auto& body : own->params.bodies) {
      if (GraphNode* found = Search(*body, node)) return found;
    }
  }
  return nullptr;
}

}  // namespace

GraphNode* NodeInExec(GraphExec& exec, const GraphNode& node) { return Search(*exec.graph, node); }

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuGraphInstantiateWithFlags)(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Instantiate(exec, graph, flags);
}

SIM_API(cuGraphInstantiate_v2)(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               std::size_t size) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && size != 0) log[0] = 0;
  return Instantiate(exec, graph, 0);
}

SIM_API(cuGraphInstantiate)(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            std::size_t size) {
  return impl_cuGraphInstantiate_v2(exec, graph, error_node, log, size);
}

namespace {
CUresult InstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                               CUDA_GRAPH_INSTANTIATE_PARAMS* params, CUstream upload) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const CUresult result = Instantiate(exec, graph, params->flags);
  if (result != CUDA_SUCCESS) {
    Graph* known = nullptr;
    params->result_out = FindGraph(graph, &known) == CUDA_SUCCESS && !Acyclic(*known)
                             ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                             : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
  }
  if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) return impl_cuGraphUpload(*exec, upload);
  return CUDA_SUCCESS;
}
}  // namespace

SIM_API(cuGraphInstantiateWithParams)(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return InstantiateWithParams(exec, graph, params,
                               params != nullptr ? params->hUploadStream : nullptr);
}

SIM_API(cuGraphInstantiateWithParams_ptsz)(CUgraphExec* exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return InstantiateWithParams(exec, graph, params,
                               PerThread(params != nullptr ? params->hUploadStream : nullptr));
}

SIM_API(cuGraphExecGetFlags)(CUgraphExec handle, cuuint64_t* flags) {
  GraphExec* exec = Find<GraphExec>(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecDestroy)(CUgraphExec handle) {
  GraphExec* exec = RemoveHandle<GraphExec>(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(GraphMutex());
    Retired().push_back(exec);
  }
  DeleteRetired();
  return CUDA_SUCCESS;
}

SIM_API(cuGraphUpload)(CUgraphExec handle, CUstream stream_handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  GraphExec* exec = Find<GraphExec>(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(RefuseCaptured(*stream));
  SIM_TRY(RefuseLegacyCapture(*stream));
  return Submit(*stream, Work{});
}

SIM_API(cuGraphLaunch)(CUgraphExec handle, CUstream stream_handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  GraphExec* exec = Find<GraphExec>(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Capturing(*stream)) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_GRAPH;
    node.context = stream->context->handle;
    node.child = CloneGraph(*exec->graph);
    return CaptureNode(*stream, std::move(node));
  }
  SIM_TRY(RefuseLegacyCapture(*stream));
  return LaunchGraph(*exec, *stream);
}

SIM_API(cuGraphNodeSetEnabled)(CUgraphExec exec_handle, CUgraphNode handle, unsigned enabled) {
  GraphExec* exec = Find<GraphExec>(exec_handle);
  GraphNode* original = Find<GraphNode>(handle);
  if (exec == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  GraphNode* node = NodeInExec(*exec, *original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = node->params.type;
  if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY &&
      type != CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeGetEnabled)(CUgraphExec exec_handle, CUgraphNode handle, unsigned* enabled) {
  GraphExec* exec = Find<GraphExec>(exec_handle);
  GraphNode* original = Find<GraphNode>(handle);
  if (exec == nullptr || original == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  GraphNode* node = NodeInExec(*exec, *original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = node->enabled;
  return CUDA_SUCCESS;
}
