// Allocation and free nodes.
#include "sim/cuda/api.h"
#include "sim/cuda/graph_nodes.h"

using namespace tessera::sim;

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
  const CUresult result = AddGraphNode(handle, graph, nodes, nullptr, count, std::move(read));
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
  return AddGraphNode(handle, graph, nodes, nullptr, count, std::move(read));
}

SIM_API(cuGraphMemFreeNodeGetParams)(CUgraphNode handle, CUdeviceptr* address) {
  GraphNode* node = nullptr;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(NodeOf(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, &node));
  *address = node->params.freed;
  return CUDA_SUCCESS;
}
