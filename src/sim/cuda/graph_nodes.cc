// Nodes: adding them, and reading and changing their parameters.
#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/event.h"
#include "sim/cuda/graph.h"
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

CUresult Add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* nodes,
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

void WriteKernelParams(const KernelCall& call, CUDA_KERNEL_NODE_PARAMS* out, GraphNode& node) {
  // The lists live as long as the node and until it is asked again.
  static auto* lists = new std::map<std::uint64_t, std::vector<void*>>;
  static auto* extras = new std::map<std::uint64_t, std::pair<std::size_t, std::vector<void*>>>;
  *out = {};
  if (call.is_kernel) {
    out->kern = reinterpret_cast<CUkernel>(call.function);
  } else {
    out->func = call.function;
  }
  out->gridDimX = call.grid[0];
  out->gridDimY = call.grid[1];
  out->gridDimZ = call.grid[2];
  out->blockDimX = call.block[0];
  out->blockDimY = call.block[1];
  out->blockDimZ = call.block[2];
  out->sharedMemBytes = call.shared;
  out->ctx = call.context;
  if (!call.packed.empty()) {
    auto& [size, list] = (*extras)[node.number];
    size = call.packed.size();
    list = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::uint8_t*>(call.packed.data()),
            CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    out->extra = list.data();
  } else {
    auto& list = (*lists)[node.number];
    list = call.Arguments();
    out->kernelParams = list.empty() ? nullptr : list.data();
  }
}

CUresult ReadAlloc(const CUDA_MEM_ALLOC_NODE_PARAMS& from, Context& context, NodeParams* to) {
  to->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  to->alloc = from;
  if (from.accessDescs != nullptr)
    to->alloc_access.assign(from.accessDescs, from.accessDescs + from.accessDescCount);
  to->alloc.accessDescs = nullptr;
  return PlaceAllocation(context, to->alloc);
}

// In the whole graph, bodies and children included.
bool HasMemoryNodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const CUgraphNodeType type = node->params.type;
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->params.child != nullptr && HasMemoryNodes(*node->params.child));
  });
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

// Puts new parameters into a node; what is not theirs stays.
void Replace(GraphNode& node, NodeParams params) {
  if (params.context == nullptr) params.context = node.params.context;
  if (params.child != nullptr) params.child->owner = &node;
  if (node.params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    params.kernel.attributes = std::move(node.params.kernel.attributes);
    params.kernel.cooperative = node.params.kernel.cooperative;
  }
  node.params = std::move(params);
}

}  // namespace

CUresult ReadKernelParams(const CUDA_KERNEL_NODE_PARAMS& from, Context& context, KernelCall* to) {
  CUfunction handle = from.func;
  if (handle == nullptr) {
    handle = reinterpret_cast<CUfunction>(from.kern);
    to->is_kernel = true;
  }
  Function* function = nullptr;
  Context* home = &context;
  if (from.ctx != nullptr) SIM_TRY(FindContext(from.ctx, &home));
  SIM_TRY(FindFunction(handle, *home, &function));
  to->function = handle;
  to->context = function->context->handle;
  const unsigned grid[3] = {from.gridDimX, from.gridDimY, from.gridDimZ};
  const unsigned block[3] = {from.blockDimX, from.blockDimY, from.blockDimZ};
  std::copy_n(grid, 3, to->grid);
  std::copy_n(block, 3, to->block);
  to->shared = from.sharedMemBytes;
  LaunchShape shape{};
  std::copy_n(grid, 3, shape.grid);
  std::copy_n(block, 3, shape.block);
  shape.shared = from.sharedMemBytes;
  SIM_TRY(CheckLaunch(*function, shape));
  return CopyArguments(*function, from.kernelParams, from.extra, to);
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
  SIM_TRY(Add(handle, graph_handle, nodes, edges, count, std::move(read)));
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

// Kernel nodes.

namespace {

CUresult KernelParams(const CUDA_KERNEL_NODE_PARAMS* params, NodeParams* read) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  read->type = CU_GRAPH_NODE_TYPE_KERNEL;
  SIM_TRY(ReadKernelParams(*params, *context, &read->kernel));
  read->context = read->kernel.context;
  return CUDA_SUCCESS;
}

CUDA_KERNEL_NODE_PARAMS Wide(const CUDA_KERNEL_NODE_PARAMS_v1& from) {
  CUDA_KERNEL_NODE_PARAMS to{};
  std::memcpy(&to, &from, sizeof(from));
  return to;
}

}  // namespace

SIM_API(cuGraphAddKernelNode_v2)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                 std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  NodeParams read;
  SIM_TRY(KernelParams(params, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphAddKernelNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = Wide(*params);
  return impl_cuGraphAddKernelNode_v2(handle, graph, nodes, count, &wide);
}

SIM_API(cuGraphKernelNodeGetParams_v2)(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
  std::lock_guard lock(GraphMutex());
  WriteKernelParams(node->params.kernel, params, *node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeGetParams)(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide{};
  SIM_TRY(impl_cuGraphKernelNodeGetParams_v2(handle, &wide));
  if (wide.func == nullptr) {
    // The old form knows functions only.
    GraphNode* node = Find<GraphNode>(handle);
    Context* context = nullptr;
    SIM_TRY(FindContext(node->params.kernel.context, &context));
    Function* function = nullptr;
    SIM_TRY(FindFunction(node->params.kernel.function, *context, &function));
    wide.func = function->handle;
  }
  std::memcpy(params, &wide, sizeof(*params));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeSetParams_v2)(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
  NodeParams read;
  SIM_TRY(KernelParams(params, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeSetParams)(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = Wide(*params);
  return impl_cuGraphKernelNodeSetParams_v2(handle, &wide);
}

SIM_API(cuGraphExecKernelNodeSetParams_v2)(CUgraphExec exec, CUgraphNode handle,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
  NodeParams read;
  SIM_TRY(KernelParams(params, &read));
  if (read.kernel.context != node->params.kernel.context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecKernelNodeSetParams)(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = Wide(*params);
  return impl_cuGraphExecKernelNodeSetParams_v2(exec, handle, &wide);
}

SIM_API(cuGraphKernelNodeCopyAttributes)(CUgraphNode to, CUgraphNode from) {
  GraphNode *target = nullptr, *source = nullptr;
  SIM_TRY(NodeOf(to, CU_GRAPH_NODE_TYPE_KERNEL, &target));
  SIM_TRY(NodeOf(from, CU_GRAPH_NODE_TYPE_KERNEL, &source));
  std::lock_guard lock(GraphMutex());
  target->params.kernel.attributes = source->params.kernel.attributes;
  target->params.kernel.cooperative = source->params.kernel.cooperative;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeGetAttribute)(CUgraphNode handle, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue* value) {
  GraphNode* node = nullptr;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
  std::lock_guard lock(GraphMutex());
  std::memset(value, 0, sizeof(*value));
  const auto found = node->params.kernel.attributes.find(id);
  if (found != node->params.kernel.attributes.end()) *value = found->second;
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value->cooperative = node->params.kernel.cooperative;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeSetAttribute)(CUgraphNode handle, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue* value) {
  GraphNode* node = nullptr;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
  std::lock_guard lock(GraphMutex());
  node->params.kernel.attributes[id] = *value;
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    node->params.kernel.cooperative = value->cooperative != 0;
  return CUDA_SUCCESS;
}

// Copy and fill nodes.

namespace {

CUresult CopyParams(const CUDA_MEMCPY3D* copy, CUcontext context, NodeParams* read) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* home = nullptr;
  SIM_TRY(HomeContext(context, &home));
  SIM_TRY(CheckCopy(*copy));
  read->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  read->context = home->handle;
  read->copy = *copy;
  return CUDA_SUCCESS;
}

CUresult FillParams(const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context, NodeParams* read) {
  if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* home = nullptr;
  SIM_TRY(HomeContext(context, &home));
  SIM_TRY(CheckFill(*fill));
  read->type = CU_GRAPH_NODE_TYPE_MEMSET;
  read->context = home->handle;
  read->fill = *fill;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuGraphAddMemcpyNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  NodeParams read;
  SIM_TRY(CopyParams(copy, context, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphMemcpyNodeGetParams)(CUgraphNode handle, CUDA_MEMCPY3D* copy) {
  GraphNode* node = nullptr;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
  *copy = node->params.copy;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphMemcpyNodeSetParams)(CUgraphNode handle, const CUDA_MEMCPY3D* copy) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
  NodeParams read;
  SIM_TRY(CopyParams(copy, node->params.context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecMemcpyNodeSetParams)(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_MEMCPY3D* copy, CUcontext context) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
  NodeParams read;
  SIM_TRY(CopyParams(copy, context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddMemsetNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_MEMSET_NODE_PARAMS* fill,
                              CUcontext context) {
  NodeParams read;
  SIM_TRY(FillParams(fill, context, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphMemsetNodeGetParams)(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* fill) {
  GraphNode* node = nullptr;
  if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEMSET, &node));
  *fill = node->params.fill;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphMemsetNodeSetParams)(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS* fill) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEMSET, &node));
  NodeParams read;
  SIM_TRY(FillParams(fill, node->params.context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecMemsetNodeSetParams)(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_MEMSET, &node));
  NodeParams read;
  SIM_TRY(FillParams(fill, context, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

// Host nodes.

SIM_API(cuGraphAddHostNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                            std::size_t count, const CUDA_HOST_NODE_PARAMS* host) {
  NodeParams read;
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadHost(host->fn, host->userData, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphHostNodeGetParams)(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* host) {
  GraphNode* node = nullptr;
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_HOST, &node));
  *host = node->params.host;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphHostNodeSetParams)(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* host) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_HOST, &node));
  NodeParams read;
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadHost(host->fn, host->userData, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecHostNodeSetParams)(CUgraphExec exec, CUgraphNode handle,
                                      const CUDA_HOST_NODE_PARAMS* host) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_HOST, &node));
  NodeParams read;
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadHost(host->fn, host->userData, &read));
  std::lock_guard lock(GraphMutex());
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

// Child graphs and empty nodes.

SIM_API(cuGraphAddChildGraphNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                  std::size_t count, CUgraph child) {
  NodeParams read;
  SIM_TRY(ReadChild(child, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
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
  return Add(handle, graph, nodes, nullptr, count, NodeParams());
}

// Event nodes.

SIM_API(cuGraphAddEventRecordNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                   std::size_t count, CUevent event) {
  NodeParams read;
  SIM_TRY(ReadEvent(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphAddEventWaitNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                 std::size_t count, CUevent event) {
  NodeParams read;
  SIM_TRY(ReadEvent(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

namespace {

CUresult GetEvent(CUgraphNode handle, CUgraphNodeType type, CUevent* event) {
  GraphNode* node = nullptr;
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, type, &node));
  *event = node->params.event;
  return CUDA_SUCCESS;
}

CUresult SetEvent(GraphNode& node, CUevent event) {
  if (Find<Event>(event) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  node.params.event = event;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuGraphEventRecordNodeGetEvent)(CUgraphNode node, CUevent* event) {
  return GetEvent(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIM_API(cuGraphEventWaitNodeGetEvent)(CUgraphNode node, CUevent* event) {
  return GetEvent(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
SIM_API(cuGraphEventRecordNodeSetEvent)(CUgraphNode handle, CUevent event) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
  return SetEvent(*node, event);
}
SIM_API(cuGraphEventWaitNodeSetEvent)(CUgraphNode handle, CUevent event) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
  return SetEvent(*node, event);
}
SIM_API(cuGraphExecEventRecordNodeSetEvent)(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
  return SetEvent(*node, event);
}
SIM_API(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
  return SetEvent(*node, event);
}

// External semaphores.

SIM_API(cuGraphAddExternalSemaphoresSignalNode)(CUgraphNode* handle, CUgraph graph,
                                                const CUgraphNode* nodes, std::size_t count,
                                                const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadSignals(*params, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphExternalSemaphoresSignalNodeGetParams)(CUgraphNode handle,
                                                      CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &node));
  *params = {node->params.semaphores.data(), node->params.signals.data(),
             static_cast<unsigned>(node->params.semaphores.size())};
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExternalSemaphoresSignalNodeSetParams)(
    CUgraphNode handle, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadSignals(*params, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecExternalSemaphoresSignalNodeSetParams)(
    CUgraphExec exec, CUgraphNode handle, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadSignals(*params, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddExternalSemaphoresWaitNode)(CUgraphNode* handle, CUgraph graph,
                                              const CUgraphNode* nodes, std::size_t count,
                                              const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadWaits(*params, &read));
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphExternalSemaphoresWaitNodeGetParams)(CUgraphNode handle,
                                                    CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &node));
  *params = {node->params.semaphores.data(), node->params.waits.data(),
             static_cast<unsigned>(node->params.semaphores.size())};
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExternalSemaphoresWaitNodeSetParams)(CUgraphNode handle,
                                                    const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadWaits(*params, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecExternalSemaphoresWaitNodeSetParams)(
    CUgraphExec exec, CUgraphNode handle, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadWaits(*params, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

// Memory operations on words.

SIM_API(cuGraphAddBatchMemOpNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                  std::size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadOps(params->count, params->paramArray, params->flags, &read));
  read.context = params->ctx;
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphBatchMemOpNodeGetParams)(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node));
  *params = {node->params.context, static_cast<unsigned>(node->params.mem_ops.size()),
             node->params.mem_ops.data(), node->params.mem_op_flags};
  return CUDA_SUCCESS;
}

SIM_API(cuGraphBatchMemOpNodeSetParams)(CUgraphNode handle,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadOps(params->count, params->paramArray, params->flags, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecBatchMemOpNodeSetParams)(CUgraphExec exec, CUgraphNode handle,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  SIM_TRY(ExecNodeOf(exec, handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node));
  NodeParams read;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(ReadOps(params->count, params->paramArray, params->flags, &read));
  Replace(*node, std::move(read));
  return CUDA_SUCCESS;
}

// Memory nodes.

SIM_API(cuGraphAddMemAllocNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams read;
  SIM_TRY(ReadAlloc(*params, *context, &read));
  read.context = context->handle;
  const CUdeviceptr address = read.alloc.dptr;
  RetainPlacement(address);
  const CUresult result = Add(handle, graph, nodes, nullptr, count, std::move(read));
  ForgetPlacement(address);
  if (result == CUDA_SUCCESS) params->dptr = address;
  return result;
}

SIM_API(cuGraphMemAllocNodeGetParams)(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node));
  *params = node->params.alloc;
  params->accessDescs =
      node->params.alloc_access.empty() ? nullptr : node->params.alloc_access.data();
  params->accessDescCount = node->params.alloc_access.size();
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddMemFreeNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                               std::size_t count, CUdeviceptr address) {
  if (!IsGraphAllocation(address)) return CUDA_ERROR_INVALID_VALUE;
  NodeParams read;
  read.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  read.freed = address;
  return Add(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphMemFreeNodeGetParams)(CUgraphNode handle, CUdeviceptr* address) {
  GraphNode* node = nullptr;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, &node));
  *address = node->params.freed;
  return CUDA_SUCCESS;
}

// Conditional nodes.

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
