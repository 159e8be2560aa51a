// Graphs: each address of an allocation node is backed by the first launch and kept until it is
// trimmed. The handle of a graph that MakeGraph has not made is the size of its only node.
#include <cstring>

#include "memory/testing/fake_state.h"

namespace tessera::fence::testing {

CUgraph MakeGraph(std::vector<GraphNode> nodes) {
  fake::Lock lock(fake::D().mutex);
  fake::D().graphs.push_back(std::move(nodes));
  return reinterpret_cast<CUgraph>(fake::D().graphs.size());
}

void EndGraphUse() {
  fake::Lock lock(fake::D().mutex);
  fake::D().graph_bytes_in_use = 0;
}

void GrowInNextLaunch(std::uint64_t bytes, bool in_use) {
  fake::Lock lock(fake::D().mutex);
  fake::D().grow_in_launch = {bytes, in_use};
}

namespace fake {

namespace {

constexpr std::uint64_t kMostGraphs = 4096;

std::vector<GraphNode> NodesOf(std::uint64_t graph) {
  if (graph >= kMostGraphs) return {{0, graph, kFirstAddress / 2}};
  return D().graphs.at(graph - 1);
}
// A node's handle: its graph, its place there, and whether it frees.
CUgraphNode MakeNode(CUgraph graph, std::uint64_t place, bool frees) {
  return reinterpret_cast<CUgraphNode>(reinterpret_cast<std::uint64_t>(graph) << 12 | place << 1 |
                                       (frees ? 1 : 0));
}
GraphNode NodeOf(CUgraphNode node) {
  Lock lock(D().mutex);
  const auto handle = reinterpret_cast<std::uint64_t>(node);
  return NodesOf(handle >> 12).at(handle >> 1 & 2047);
}

void Back(const GraphNode& node) {
  std::pair<int, std::uint64_t>& backed = D().graph_memory[node.address];
  const std::uint64_t bytes = Blocks(node.bytes);
  if (bytes <= backed.second) return;
  D().bytes[node.device] += bytes - backed.second;
  backed = {node.device, bytes};
}

CUresult GraphNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Lock lock(D().mutex);
  std::size_t at = 0;
  const std::size_t made = NodesOf(reinterpret_cast<std::uint64_t>(graph)).size();
  for (std::size_t place = 0; place < made; ++place) {
    for (const bool frees : {false, true}) {
      if (nodes != nullptr && at < *count) nodes[at] = MakeNode(graph, place, frees);
      ++at;
    }
  }
  *count = at;
  return CUDA_SUCCESS;
}
CUresult NodeType(CUgraphNode node, CUgraphNodeType* type) {
  *type = (reinterpret_cast<std::uint64_t>(node) & 1) != 0 ? CU_GRAPH_NODE_TYPE_MEM_FREE
                                                           : CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return CUDA_SUCCESS;
}
CUresult AllocNodeParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  const GraphNode node = NodeOf(handle);
  std::memset(params, 0, sizeof *params);
  params->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {node.device}};
  params->bytesize = node.bytes;
  params->dptr = node.address;
  return CUDA_SUCCESS;
}
CUresult FreeNodeParams(CUgraphNode handle, CUdeviceptr* address) {
  *address = NodeOf(handle).address;
  return CUDA_SUCCESS;
}
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
CUresult LaunchGraph(CUgraphExec exec, CUstream) {
  Lock lock(D().mutex);
  ++D().allocation_calls;
  for (const GraphNode& node : NodesOf(reinterpret_cast<std::uint64_t>(exec))) Back(node);
  if (const auto [bytes, in_use] = std::exchange(D().grow_in_launch, {}); bytes != 0) {
    Back({0, bytes, kFirstAddress / 4});
    D().graph_bytes_in_use = in_use ? bytes : 0;
  }
  return CUDA_SUCCESS;
}
CUresult EndExec(CUgraphExec) { return CUDA_SUCCESS; }
CUresult TrimGraphs(CUdevice device) {
  Lock lock(D().mutex);
  std::erase_if(D().graph_memory, [&](const auto& entry) {
    const auto& [address, backed] = entry;
    if (backed.first != device) return false;
    if (address == kFirstAddress / 4 && D().graph_bytes_in_use != 0) return false;
    D().bytes[device] -= backed.second;
    return true;
  });
  return CUDA_SUCCESS;
}
CUresult GraphAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  Lock lock(D().mutex);
  std::uint64_t reserved = 0;
  for (const auto& [address, backed] : D().graph_memory) {
    if (backed.first == device) reserved += backed.second;
  }
  *static_cast<cuuint64_t*>(value) = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? reserved
                                     : device == 0 ? D().graph_bytes_in_use
                                                   : 0;
  return CUDA_SUCCESS;
}

}  // namespace

void PlaceGraphs() {
  real::cuGraphGetNodes = GraphNodes;
  real::cuGraphNodeGetType = NodeType;
  real::cuGraphMemAllocNodeGetParams = AllocNodeParams;
  real::cuGraphMemFreeNodeGetParams = FreeNodeParams;
  real::cuGraphInstantiateWithFlags = Instantiate;
  real::cuGraphLaunch = LaunchGraph;
  real::cuGraphExecDestroy = EndExec;
  real::cuDeviceGraphMemTrim = TrimGraphs;
  real::cuDeviceGetGraphMemAttribute = GraphAttribute;
}

}  // namespace fake
}  // namespace tessera::fence::testing
