#include "sim/cuda/graph_nodes.h"

#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/event.h"
#include "sim/cuda/memop.h"

namespace tessera::sim {
namespace {

CUresult Dependencies(Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                      std::size_t count, std::vector<GraphEdge>* out) {
  if (nodes == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = Find<GraphNode>(nodes[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    for (const GraphEdge& have : *out) {
      if (have.node == node) return CUDA_ERROR_INVALID_VALUE;
    }
    out->push_back({node, edges != nullptr ? edges[i] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

// In the whole graph, bodies and children included.
bool HasMemoryNodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const CUgraphNodeType type = node->params.type;
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->params.child != nullptr && HasMemoryNodes(*node->params.child));
  });
}

}  // namespace

CUresult AddGraphNode(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* nodes,
                      const CUgraphEdgeData* edges, std::size_t count, NodeParams params) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  std::vector<GraphEdge> before;
  SIM_TRY(Dependencies(*graph, nodes, edges, count, &before));
  GraphNode* node = AddNode(*graph, std::move(params), before);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = node->handle;
  return CUDA_SUCCESS;
}

CUresult NodeOf(CUgraphNode handle, CUgraphNodeType type, GraphNode** node) {
  *node = Find<GraphNode>(handle);
  return *node != nullptr && (*node)->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult ExecNodeOf(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeType type,
                    GraphNode** node) {
  GraphExec* exec = Find<GraphExec>(exec_handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GraphNode* original = Find<GraphNode>(handle);
  if (original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  *node = NodeInExec(*exec, *original);
  return *node != nullptr && (*node)->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult HomeContext(CUcontext handle, Context** context) {
  if (handle != nullptr) return FindContext(handle, context);
  return CurrentContext(context);
}

CUresult ReadAlloc(const CUDA_MEM_ALLOC_NODE_PARAMS& from, Context& context, NodeParams* to) {
  to->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  to->alloc = from;
  if (from.accessDescs != nullptr)
    to->alloc_access.assign(from.accessDescs, from.accessDescs + from.accessDescCount);
  to->alloc.accessDescs = nullptr;
  return PlaceAllocation(context, to->alloc);
}

CUresult ReadChild(CUgraph handle, NodeParams* to) {
  Graph* child = nullptr;
  SIM_TRY(FindGraph(handle, &child));
  if (HasMemoryNodes(*child)) return CUDA_ERROR_NOT_SUPPORTED;
  to->type = CU_GRAPH_NODE_TYPE_GRAPH;
  to->child = CloneGraph(*child);
  return CUDA_SUCCESS;
}

CUresult ReadOps(unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags,
                 NodeParams* to) {
  if (flags != 0 || count == 0 || ops == nullptr || count > 256) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) SIM_TRY(CheckMemOp(ops[i]));
  to->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  to->mem_ops.assign(ops, ops + count);
  to->mem_op_flags = flags;
  return CUDA_SUCCESS;
}

CUresult ReadHost(CUhostFn function, void* data, NodeParams* to) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  to->type = CU_GRAPH_NODE_TYPE_HOST;
  to->host = {function, data};
  return CUDA_SUCCESS;
}

CUresult ReadEvent(CUevent handle, CUgraphNodeType type, NodeParams* to) {
  if (Find<Event>(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  to->type = type;
  to->event = handle;
  return CUDA_SUCCESS;
}

void Replace(GraphNode& node, NodeParams params) {
  if (params.context == nullptr) params.context = node.params.context;
  if (params.child != nullptr) params.child->owner = &node;
  if (node.params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    params.kernel.attributes = std::move(node.params.kernel.attributes);
    params.kernel.cooperative = node.params.kernel.cooperative;
  }
  node.params = std::move(params);
}

CUresult ReadNodeParams(const CUgraphNodeParams& from, Context& context, NodeParams* to) {
  to->type = from.type;
  to->context = context.handle;
  switch (from.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      std::memcpy(&kernel, &from.kernel, std::min(sizeof(kernel), sizeof(from.kernel)));
      return ReadKernelParams(kernel, context, &to->kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      Context* home = nullptr;
      SIM_TRY(HomeContext(from.memcpy.copyCtx, &home));
      to->context = home->handle;
      to->copy = from.memcpy.copyParams;
      return CheckCopy(to->copy);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      Context* home = nullptr;
      SIM_TRY(HomeContext(from.memset.ctx, &home));
      to->context = home->handle;
      to->fill = {from.memset.dst,         from.memset.pitch, from.memset.value,
                  from.memset.elementSize, from.memset.width, from.memset.height};
      return CheckFill(to->fill);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return ReadHost(from.host.fn, from.host.userData, to);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return ReadChild(from.graph.graph, to);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return ReadEvent(from.eventWait.event, from.type, to);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return ReadEvent(from.eventRecord.event, from.type, to);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return ReadSignals(from.extSemSignal, to);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return ReadWaits(from.extSemWait, to);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
      alloc.poolProps = from.alloc.poolProps;
      alloc.accessDescs = from.alloc.accessDescs;
      alloc.accessDescCount = from.alloc.accessDescCount;
      alloc.bytesize = from.alloc.bytesize;
      return ReadAlloc(alloc, context, to);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (!IsGraphAllocation(from.free.dptr)) return CUDA_ERROR_INVALID_VALUE;
      to->freed = from.free.dptr;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return ReadOps(from.memOp.count, from.memOp.paramArray, from.memOp.flags, to);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      const auto& params = from.conditional;
      if (Find<Conditional>(params.handle) == nullptr || params.size == 0 || params.size > 64)
        return CUDA_ERROR_INVALID_VALUE;
      if (params.type == CU_GRAPH_COND_TYPE_WHILE && params.size != 1)
        return CUDA_ERROR_INVALID_VALUE;
      if (params.type == CU_GRAPH_COND_TYPE_IF && params.size > 2) return CUDA_ERROR_INVALID_VALUE;
      to->conditional = params.handle;
      to->conditional_type = params.type;
      for (unsigned i = 0; i < params.size; ++i) {
        to->bodies.push_back(std::make_unique<Graph>());
        to->body_handles.push_back(to->bodies.back()->handle);
      }
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuGraphAddNode_v2)(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* nodes,
                           const CUgraphEdgeData* edges, std::size_t count,
                           CUgraphNodeParams* params) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  NodeParams read;
  SIM_TRY(ReadNodeParams(*params, *context, &read));
  SIM_TRY(AddGraphNode(handle, graph_handle, nodes, edges, count, std::move(read)));
  GraphNode* node = Find<GraphNode>(*handle);
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) params->alloc.dptr = node->params.alloc.dptr;
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    params->conditional.phGraph_out = node->params.body_handles.data();
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                        std::size_t count, CUgraphNodeParams* params) {
  return impl_cuGraphAddNode_v2(handle, graph, nodes, nullptr, count, params);
}

SIM_API(cuGraphNodeSetParams)(CUgraphNode handle, CUgraphNodeParams* params) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  GraphNode* node = Find<GraphNode>(handle);
  if (node == nullptr || params == nullptr || params->type != node->params.type)
    return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  NodeParams read;
  SIM_TRY(ReadNodeParams(*params, *context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecNodeSetParams)(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams* params) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The nodes of a child may be at work: they take new parameters, they are not replaced.
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return impl_cuGraphExecChildGraphNodeSetParams(exec, handle, params->graph.graph);
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, params->type, &node));
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  NodeParams read;
  SIM_TRY(ReadNodeParams(*params, *context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}
