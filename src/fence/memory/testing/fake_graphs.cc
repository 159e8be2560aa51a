// Graphs: the handle of a graph is the size of its only allocation node; memory comes with the
// first launch.
#include <cstring>

#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

CUresult GraphNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  if (nodes != nullptr && *count > 0) nodes[0] = reinterpret_cast<CUgraphNode>(graph);
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult NodeType(CUgraphNode, CUgraphNodeType* type) {
  *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return CUDA_SUCCESS;
}
CUresult AllocNodeParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  std::memset(params, 0, sizeof *params);
  params->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params->bytesize = reinterpret_cast<std::uint64_t>(node);
  params->dptr = kFirstAddress / 2;
  return CUDA_SUCCESS;
}
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
CUresult LaunchGraph(CUgraphExec exec, CUstream) {
  Lock lock(D().mutex);
  ++D().allocation_calls;
  const std::uint64_t bytes = Blocks(reinterpret_cast<std::uint64_t>(exec));
  if (bytes > D().graph_bytes) {
    D().bytes[0] += bytes - D().graph_bytes;
    D().graph_bytes = bytes;
  }
  return CUDA_SUCCESS;
}
CUresult EndExec(CUgraphExec) { return CUDA_SUCCESS; }
CUresult TrimGraphs(CUdevice) {
  Lock lock(D().mutex);
  D().bytes[0] -= D().graph_bytes;
  D().graph_bytes = 0;
  return CUDA_SUCCESS;
}
CUresult GraphAttribute(CUdevice, CUgraphMem_attribute attribute, void* value) {
  Lock lock(D().mutex);
  *static_cast<cuuint64_t*>(value) =
      attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? D().graph_bytes : 0;
  return CUDA_SUCCESS;
}

}  // namespace

void PlaceGraphs() {
  real::cuGraphGetNodes = GraphNodes;
  real::cuGraphNodeGetType = NodeType;
  real::cuGraphMemAllocNodeGetParams = AllocNodeParams;
  real::cuGraphInstantiateWithFlags = Instantiate;
  real::cuGraphLaunch = LaunchGraph;
  real::cuGraphExecDestroy = EndExec;
  real::cuDeviceGraphMemTrim = TrimGraphs;
  real::cuDeviceGetGraphMemAttribute = GraphAttribute;
}

}  // namespace tessera::fence::testing::fake
