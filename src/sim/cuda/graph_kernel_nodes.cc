// Kernel nodes.
#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/graph_nodes.h"

namespace tessera::sim {
namespace {

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

}  // namespace tessera::sim

using namespace tessera::sim;

namespace {

struct KernelKind {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_KERNEL;
  using Params = CUDA_KERNEL_NODE_PARAMS;
  static CUresult Read(const Params& params, CUcontext, NodeParams* read) {
    Context* context = nullptr;
    SIM_TRY(CurrentContext(&context));
    read->type = kType;
    SIM_TRY(ReadKernelParams(params, *context, &read->kernel));
    read->context = read->kernel.context;
    return CUDA_SUCCESS;
  }
  static CUresult Write(GraphNode& node, Params* params) {
    WriteKernelParams(node.params.kernel, params, node);
    return CUDA_SUCCESS;
  }
  static bool Fits(const GraphNode& node, const NodeParams& read) {
    return read.kernel.context == node.params.kernel.context;
  }
};

CUDA_KERNEL_NODE_PARAMS Wide(const CUDA_KERNEL_NODE_PARAMS_v1& from) {
  CUDA_KERNEL_NODE_PARAMS to{};
  std::memcpy(&to, &from, sizeof(from));
  return to;
}

}  // namespace

SIM_API(cuGraphAddKernelNode_v2)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                 std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return AddKind<KernelKind>(handle, graph, nodes, count, params);
}

SIM_API(cuGraphAddKernelNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = Wide(*params);
  return impl_cuGraphAddKernelNode_v2(handle, graph, nodes, count, &wide);
}

SIM_API(cuGraphKernelNodeGetParams_v2)(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  return GetKind<KernelKind>(handle, params);
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
  return SetKind<KernelKind>(handle, params);
}

SIM_API(cuGraphKernelNodeSetParams)(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = Wide(*params);
  return impl_cuGraphKernelNodeSetParams_v2(handle, &wide);
}

SIM_API(cuGraphExecKernelNodeSetParams_v2)(CUgraphExec exec, CUgraphNode handle,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  return SetExecKind<KernelKind>(exec, handle, params);
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
