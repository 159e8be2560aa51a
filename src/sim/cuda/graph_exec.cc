// Executable graphs: making, changing, and launching them.
#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/event.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/memop.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/semaphore_work.h"
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

void DeleteRetired() {
  std::lock_guard lock(GraphMutex());
  std::erase_if(Retired(), [](GraphExec* exec) {
    if (!IsDone(exec->last)) return false;
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

Stream& LaneOf(GraphNode& node, Context& context) {
  if (node.lane == nullptr) {
    node.lane = std::make_unique<Stream>();
    node.lane->internal = true;
    node.lane->flags = CU_STREAM_NON_BLOCKING;
  }
  node.lane->context = &context;
  return *node.lane;
}

CUresult SubmitKernel(Stream& lane, const KernelCall& call, Context& context, Work work) {
  Function* function = nullptr;
  SIM_TRY(FindFunction(call.function, context, &function));
  work.engine = EngineKind::kCompute;
  work.duration_ns = function->duration_ns;
  if (function->host != nullptr) {
    NoteUntrackedWrites();
    work.effect = [host = function->host, call] {
      std::vector<void*> arguments = call.Arguments();
      const unsigned sizes[6] = {call.grid[0],  call.grid[1],  call.grid[2],
                                 call.block[0], call.block[1], call.block[2]};
      host(arguments.data(), sizes);
      MemoryChanged();
    };
  }
  return Submit(lane, std::move(work));
}

CUresult RunNodes(Graph& graph, Context& context, const Point& start, std::vector<Point>* ends);

// Which body a conditional node runs: no device code sets the handle, so its default decides, and a
// loop runs once.
const Graph* ChosenBody(const NodeParams& params) {
  const Conditional* conditional = Find<Conditional>(params.conditional);
  if (conditional == nullptr || (conditional->flags & CU_GRAPH_COND_ASSIGN_DEFAULT) == 0)
    return nullptr;
  const unsigned value = conditional->default_value;
  if (params.conditional_type == CU_GRAPH_COND_TYPE_SWITCH) {
    return value < params.bodies.size() ? params.bodies[value].get() : nullptr;
  }
  if (value != 0) return params.bodies[0].get();
  return params.conditional_type == CU_GRAPH_COND_TYPE_IF && params.bodies.size() == 2
             ? params.bodies[1].get()
             : nullptr;
}

CUresult RunNode(GraphNode& node, Context& launch_context, std::vector<Point> after) {
  NodeParams& params = node.params;
  Context* context = &launch_context;
  if (params.context != nullptr) {
    if (Context* own = Find<Context>(params.context)) context = own;
  }
  Stream& lane = LaneOf(node, *context);
  Work work;
  work.after = std::move(after);
  const CUgraphNodeType type = node.enabled ? params.type : CU_GRAPH_NODE_TYPE_EMPTY;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      SIM_TRY(SubmitKernel(lane, params.kernel, *context, std::move(work)));
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      SIM_TRY(CopyWork(*context, params.copy, &work));
      SIM_TRY(Submit(lane, std::move(work)));
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      SIM_TRY(FillWork(*context, params.fill, &work));
      SIM_TRY(Submit(lane, std::move(work)));
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      work.host_function = true;
      work.effect = [host = params.host] {
        host.fn(host.userData);
        MemoryChanged();
      };
      SIM_TRY(Submit(lane, std::move(work)));
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      SIM_TRY(Submit(lane, std::move(work)));
      if (Event* event = Find<Event>(params.event)) SIM_TRY(RecordEvent(lane, *event));
      break;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      SIM_TRY(Submit(lane, std::move(work)));
      if (Event* event = Find<Event>(params.event)) SIM_TRY(WaitForEvent(lane, *event));
      break;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      SIM_TRY(Submit(lane, std::move(work)));
      for (const CUstreamBatchMemOpParams& op : params.mem_ops) SIM_TRY(SubmitMemOp(lane, op));
      break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      SIM_TRY(Submit(lane, std::move(work)));
      SIM_TRY(type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
                  ? SignalSemaphores(lane, params.semaphores, params.signals)
                  : WaitForSemaphores(lane, params.semaphores, params.waits));
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      SIM_TRY(Submit(lane, std::move(work)));
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      SIM_TRY(ReleaseAllocation(params.freed));
      SIM_TRY(Submit(lane, std::move(work)));
      break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      auto* inner = type == CU_GRAPH_NODE_TYPE_GRAPH ? params.child.get()
                                                     : const_cast<Graph*>(ChosenBody(params));
      Point start;
      SIM_TRY(Submit(lane, std::move(work), &start));
      if (inner == nullptr) break;
      Work join;
      SIM_TRY(RunNodes(*inner, *context, start, &join.after));
      SIM_TRY(Submit(lane, std::move(join)));
      break;
    }
    default:
      SIM_TRY(Submit(lane, std::move(work)));
      break;
  }
  node.done = TailOf(lane);
  return CUDA_SUCCESS;
}

CUresult RunNodes(Graph& graph, Context& context, const Point& start, std::vector<Point>* ends) {
  std::vector<GraphNode*> order;
  InOrder(graph, &order);
  ends->push_back(start);
  for (GraphNode* node : order) {
    std::vector<Point> after{start};
    for (const GraphEdge& edge : node->before) after.push_back(edge.node->done);
    SIM_TRY(RunNode(*node, context, std::move(after)));
    if (node->behind.empty()) ends->push_back(node->done);
  }
  return CUDA_SUCCESS;
}

// Memory that the launch's nodes allocate; what they already hold is given back first when the
// graph was made so.
CUresult TakeMemory(Graph& graph, bool auto_free) {
  std::vector<CUdeviceptr> taken;
  for (const auto& node : graph.nodes) {
    if (node->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const CUdeviceptr address = node->params.alloc.dptr;
    if (auto_free && AllocationInUse(address)) ReleaseAllocation(address);
    const CUresult result = BackAllocation(address);
    if (result != CUDA_SUCCESS) {
      for (CUdeviceptr back : taken) ReleaseAllocation(back);
      return result;
    }
    taken.push_back(address);
  }
  return CUDA_SUCCESS;
}

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

GraphNode* NodeInExec(GraphExec& exec, const GraphNode& node) { return Search(*exec.graph, node); }

CUresult LaunchGraph(GraphExec& exec, Stream& stream) {
  std::lock_guard launch(exec.mutex);
  SIM_TRY(
      TakeMemory(*exec.graph, (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0));
  Work begin;
  begin.after.push_back(exec.last);  // launches of one executable graph follow each other
  Point start;
  SIM_TRY(Submit(stream, std::move(begin), &start));
  Work join;
  SIM_TRY(RunNodes(*exec.graph, *stream.context, start, &join.after));
  return Submit(stream, std::move(join), &exec.last);
}

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
