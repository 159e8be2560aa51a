// Copy and fill nodes.
#include "sim/cuda/api.h"
#include "sim/cuda/graph_nodes.h"

using namespace tessera::sim;

namespace {

struct CopyKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_MEMCPY;
  using Params = CUDA_MEMCPY3D;
  static CUresult Read(const Params& copy, CUcontext context, NodeParams* read) {
    Context* home = nullptr;
    SIM_TRY(HomeContext(context, &home));
    SIM_TRY(CheckCopy(copy));
    read->type = kType;
    read->context = home->handle;
    read->copy = copy;
    return CUDA_SUCCESS;
  }
  static CUresult Write(const GraphNode& node, Params* copy) {
    *copy = node.params.copy;
    return CUDA_SUCCESS;
  }
};

struct FillKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_MEMSET;
  using Params = CUDA_MEMSET_NODE_PARAMS;
  static CUresult Read(const Params& fill, CUcontext context, NodeParams* read) {
    Context* home = nullptr;
    SIM_TRY(HomeContext(context, &home));
    SIM_TRY(CheckFill(fill));
    read->type = kType;
    read->context = home->handle;
    read->fill = fill;
    return CUDA_SUCCESS;
  }
  static CUresult Write(const GraphNode& node, Params* fill) {
    *fill = node.params.fill;
    return CUDA_SUCCESS;
  }
};

}  // namespace

SIM_API(cuGraphAddMemcpyNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  return AddKind<CopyKind>(handle, graph, nodes, count, copy, context);
}
SIM_API(cuGraphMemcpyNodeGetParams)(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  return GetKind<CopyKind>(node, copy);
}
SIM_API(cuGraphMemcpyNodeSetParams)(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  return SetKind<CopyKind>(node, copy);
}
SIM_API(cuGraphExecMemcpyNodeSetParams)(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* copy, CUcontext context) {
  return SetExecKind<CopyKind>(exec, node, copy, context);
}

SIM_API(cuGraphAddMemsetNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                              std::size_t count, const CUDA_MEMSET_NODE_PARAMS* fill,
                              CUcontext context) {
  return AddKind<FillKind>(handle, graph, nodes, count, fill, context);
}
SIM_API(cuGraphMemsetNodeGetParams)(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* fill) {
  return GetKind<FillKind>(node, fill);
}
SIM_API(cuGraphMemsetNodeSetParams)(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* fill) {
  return SetKind<FillKind>(node, fill);
}
SIM_API(cuGraphExecMemsetNodeSetParams)(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
  return SetExecKind<FillKind>(exec, node, fill, context);
}
