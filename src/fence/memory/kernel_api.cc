// Calls that look at a kernel of a library, or put one into a graph: the driver loads the kernel's
// code for them, as for a launch.
#include <cstring>

#include "compute/gate.h"
#include "memory/libraries.h"
#include "memory/private_copy.h"
#include "real.h"

namespace tessera::fence {
namespace {

CUfunction AsFunction(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

// With `context` current where that is null.
template <typename Call>
CUresult WithCode(CUfunction function, CUcontext context, Call&& call) {
  if (LaunchesAreWatched()) {
    if (const CUresult loaded = LoadForKernel(function, context); loaded != CUDA_SUCCESS)
      return loaded;
  }
  return call();
}

// A node is described by a function, or by a kernel and a context. A function that is in truth a
// kernel runs in the current context, or in that of the description.
template <typename Params, typename Call>
CUresult WithDescribed(const Params& params, Call&& call) {
  if (params.func == nullptr) return WithCode(AsFunction(params.kern), params.ctx, call);
  return WithCode(params.func, nullptr, [&] { return WithCode(params.func, params.ctx, call); });
}

template <typename Params, typename Call>
CUresult WithNode(const Params* params, Call&& call) {
  if (params == nullptr) return call(params);
  const PrivateCopy own(params);
  return WithDescribed(*own, [&] { return call(own.get()); });
}
template <typename Call>
CUresult WithNode(const CUDA_KERNEL_NODE_PARAMS_v1* params, Call&& call) {
  if (params == nullptr) return call(params);
  const PrivateCopy own(params);
  return WithCode(own->func, nullptr, [&] { return call(own.get()); });
}
// Nodes of any kind, whose description the driver may complete.
template <typename Call>
CUresult WithAnyNode(CUgraphNodeParams* params, Call&& call) {
  if (params == nullptr) return call(params);
  CUgraphNodeParams own = *PrivateCopy(params);
  const auto made = [&] { return call(&own); };
  const CUresult result =
      own.type == CU_GRAPH_NODE_TYPE_KERNEL ? WithDescribed(own.kernel, made) : made();
  // What the driver leaves as it was may lie where nobody can write.
  if (std::memcmp(params, &own, sizeof own) != 0) std::memcpy(params, &own, sizeof own);
  return result;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                    CUfunction function) {
  return WithCode(function, nullptr,
                  [&] { return real::cuFuncGetAttribute(value, attribute, function); });
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                    int value) {
  return WithCode(function, nullptr,
                  [&] { return real::cuFuncSetAttribute(function, attribute, value); });
}
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
  return WithCode(function, nullptr, [&] { return real::cuFuncGetModule(module, function); });
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
  return WithCode(function, nullptr, [&] { return real::cuFuncGetName(name, function); });
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                    size_t* size) {
  return WithCode(function, nullptr,
                  [&] { return real::cuFuncGetParamInfo(function, index, offset, size); });
}
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return WithCode(function, nullptr, [&] { return real::cuFuncIsLoaded(state, function); });
}
CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  return WithCode(function, nullptr, [&] { return real::cuFuncLoad(function); });
}
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  return WithCode(function, nullptr, [&] { return real::cuFuncSetCacheConfig(function, config); });
}
CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  return WithCode(function, nullptr,
                  [&] { return real::cuFuncSetSharedMemConfig(function, config); });
}
CUresult CUDAAPI cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  return WithCode(function, nullptr, [&] { return real::cuFuncSetBlockShape(function, x, y, z); });
}
CUresult CUDAAPI cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
  return WithCode(function, nullptr, [&] { return real::cuFuncSetSharedSize(function, bytes); });
}
CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                      CUdevice device) {
  return WithCode(AsFunction(kernel), nullptr,
                  [&] { return real::cuKernelGetAttribute(value, attribute, kernel, device); });
}
CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                      CUdevice device) {
  return WithCode(AsFunction(kernel), nullptr,
                  [&] { return real::cuKernelSetAttribute(attribute, value, kernel, device); });
}
CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  return WithCode(AsFunction(kernel), nullptr,
                  [&] { return real::cuKernelSetCacheConfig(kernel, config, device); });
}
CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function,
                                                         int blocks, int block_size) {
  return WithCode(function, nullptr, [&] {
    return real::cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, block_size);
  });
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                             int block_size, size_t shared) {
  return WithCode(function, nullptr, [&] {
    return real::cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared);
  });
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                      CUfunction function,
                                                                      int block_size, size_t shared,
                                                                      unsigned int flags) {
  return WithCode(function, nullptr, [&] {
    return real::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                      shared, flags);
  });
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                              const CUlaunchConfig* config) {
  return WithCode(function, nullptr,
                  [&] { return real::cuOccupancyMaxActiveClusters(clusters, function, config); });
}
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size,
                                                  CUfunction function, CUoccupancyB2DSize to_shared,
                                                  size_t shared, int limit) {
  return WithCode(function, nullptr, [&] {
    return real::cuOccupancyMaxPotentialBlockSize(grid_size, block_size, function, to_shared,
                                                  shared, limit);
  });
}
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_size, int* block_size,
                                                           CUfunction function,
                                                           CUoccupancyB2DSize to_shared,
                                                           size_t shared, int limit,
                                                           unsigned int flags) {
  return WithCode(function, nullptr, [&] {
    return real::cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function,
                                                           to_shared, shared, limit, flags);
  });
}
CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function,
                                                    const CUlaunchConfig* config) {
  return WithCode(function, nullptr,
                  [&] { return real::cuOccupancyMaxPotentialClusterSize(size, function, config); });
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS_v1* own) {
    return real::cuGraphAddKernelNode(node, graph, after, count, own);
  });
}
CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node,
                                            const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS_v1* own) {
    return real::cuGraphKernelNodeSetParams(node, own);
  });
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS_v1* own) {
    return real::cuGraphExecKernelNodeSetParams(exec, node, own);
  });
}
CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                         size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS* own) {
    return real::cuGraphAddKernelNode_v2(node, graph, after, count, own);
  });
}
CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS* own) {
    return real::cuGraphKernelNodeSetParams_v2(node, own);
  });
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS* params) {
  return WithNode(params, [&](const CUDA_KERNEL_NODE_PARAMS* own) {
    return real::cuGraphExecKernelNodeSetParams_v2(exec, node, own);
  });
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                size_t count, CUgraphNodeParams* params) {
  return WithAnyNode(params, [&](CUgraphNodeParams* own) {
    return real::cuGraphAddNode(node, graph, after, count, own);
  });
}
CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   const CUgraphEdgeData* edges, size_t count,
                                   CUgraphNodeParams* params) {
  return WithAnyNode(params, [&](CUgraphNodeParams* own) {
    return real::cuGraphAddNode_v2(node, graph, after, edges, count, own);
  });
}
CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return WithAnyNode(params,
                     [&](CUgraphNodeParams* own) { return real::cuGraphNodeSetParams(node, own); });
}
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                          CUgraphNodeParams* params) {
  return WithAnyNode(params, [&](CUgraphNodeParams* own) {
    return real::cuGraphExecNodeSetParams(exec, node, own);
  });
}

}  // extern "C"
