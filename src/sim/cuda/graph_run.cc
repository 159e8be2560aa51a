// One launch of an executable graph: each node is work on a lane of its own, after the ends of
// those it depends on.
#include <algorithm>

#include "sim/cuda/api.h"
#include "sim/cuda/event.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/memop.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/semaphore_work.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

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

void GiveBack(const std::vector<CUdeviceptr>& taken) {
  for (CUdeviceptr address : taken)
    if (AllocationInUse(address)) ReleaseAllocation(address);
}

// Memory that the launch's nodes allocate; what they already hold is given back first when the
// graph was made so.
CUresult TakeMemory(Graph& graph, bool auto_free, std::vector<CUdeviceptr>* taken) {
  for (const auto& node : graph.nodes) {
    if (node->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const CUdeviceptr address = node->params.alloc.dptr;
    if (auto_free && AllocationInUse(address)) ReleaseAllocation(address);
    const CUresult result = BackAllocation(address);
    if (result != CUDA_SUCCESS) {
      GiveBack(*taken);
      return result;
    }
    taken->push_back(address);
  }
  return CUDA_SUCCESS;
}

// Ends of everything that ever ran on the graph's lanes.
void AddEnds(const Graph& graph, std::vector<Point>* ends) {
  for (const auto& node : graph.nodes) {
    if (node->lane != nullptr) ends->push_back(TailOf(*node->lane));
    if (node->params.child != nullptr) AddEnds(*node->params.child, ends);
    for (const auto& body : node->params.bodies) AddEnds(*body, ends);
  }
}

}  // namespace

CUresult LaunchGraph(GraphExec& exec, Stream& stream) {
  std::lock_guard launch(exec.mutex);
  std::vector<CUdeviceptr> taken;
  SIM_TRY(TakeMemory(*exec.graph,
                     (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0, &taken));
  Work begin;
  begin.after.push_back(exec.last);  // launches of one executable graph follow each other
  Point start;
  SIM_TRY(Submit(stream, std::move(begin), &start));
  Work join;
  const CUresult result = RunNodes(*exec.graph, *stream.context, start, &join.after);
  if (result != CUDA_SUCCESS) {
    // What had begun goes on; the launch ends after it, and leaves no memory taken.
    AddEnds(*exec.graph, &join.after);
    GiveBack(taken);
  }
  SIM_TRY(Submit(stream, std::move(join), &exec.last));
  return result;
}

}  // namespace tessera::sim
