// Nodes that order work against other work: events, external semaphores, words in memory.
#include "sim/cuda/api.h"
#include "sim/cuda/graph_nodes.h"

using namespace tessera::sim;

namespace {

template <CUgraphNodeType type>
struct EventKind : AnyFits {
  static constexpr CUgraphNodeType kType = type;
  using Params = CUevent;
  static CUresult Read(CUevent event, CUcontext, NodeParams* read) {
    return ReadEvent(event, type, read);
  }
  static CUresult Write(const GraphNode& node, CUevent* event) {
    *event = node.params.event;
    return CUDA_SUCCESS;
  }
};
using RecordKind = EventKind<CU_GRAPH_NODE_TYPE_EVENT_RECORD>;
using WaitKind = EventKind<CU_GRAPH_NODE_TYPE_WAIT_EVENT>;

struct SignalKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  using Params = CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
  static CUresult Read(const Params& params, CUcontext, NodeParams* read) {
    return ReadSignals(params, read);
  }
  static CUresult Write(GraphNode& node, Params* params) {
    *params = {node.params.semaphores.data(), node.params.signals.data(),
               static_cast<unsigned>(node.params.semaphores.size())};
    return CUDA_SUCCESS;
  }
};

struct AwaitKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  using Params = CUDA_EXT_SEM_WAIT_NODE_PARAMS;
  static CUresult Read(const Params& params, CUcontext, NodeParams* read) {
    return ReadWaits(params, read);
  }
  static CUresult Write(GraphNode& node, Params* params) {
    *params = {node.params.semaphores.data(), node.params.waits.data(),
               static_cast<unsigned>(node.params.semaphores.size())};
    return CUDA_SUCCESS;
  }
};

struct MemOpKind : AnyFits {
  static constexpr CUgraphNodeType kType = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  using Params = CUDA_BATCH_MEM_OP_NODE_PARAMS;
  static CUresult Read(const Params& params, CUcontext, NodeParams* read) {
    SIM_TRY(ReadOps(params.count, params.paramArray, params.flags, read));
    read->context = params.ctx;
    return CUDA_SUCCESS;
  }
  static CUresult Write(GraphNode& node, Params* params) {
    *params = {node.params.context, static_cast<unsigned>(node.params.mem_ops.size()),
               node.params.mem_ops.data(), node.params.mem_op_flags};
    return CUDA_SUCCESS;
  }
};

}  // namespace

SIM_API(cuGraphAddEventRecordNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                   std::size_t count, CUevent event) {
  return AddKind<RecordKind>(handle, graph, nodes, count, &event);
}
SIM_API(cuGraphEventRecordNodeGetEvent)(CUgraphNode node, CUevent* event) {
  return GetKind<RecordKind>(node, event);
}
SIM_API(cuGraphEventRecordNodeSetEvent)(CUgraphNode node, CUevent event) {
  return SetKind<RecordKind>(node, &event);
}
SIM_API(cuGraphExecEventRecordNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetExecKind<RecordKind>(exec, node, &event);
}

SIM_API(cuGraphAddEventWaitNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                 std::size_t count, CUevent event) {
  return AddKind<WaitKind>(handle, graph, nodes, count, &event);
}
SIM_API(cuGraphEventWaitNodeGetEvent)(CUgraphNode node, CUevent* event) {
  return GetKind<WaitKind>(node, event);
}
SIM_API(cuGraphEventWaitNodeSetEvent)(CUgraphNode node, CUevent event) {
  return SetKind<WaitKind>(node, &event);
}
SIM_API(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetExecKind<WaitKind>(exec, node, &event);
}

SIM_API(cuGraphAddExternalSemaphoresSignalNode)(CUgraphNode* handle, CUgraph graph,
                                                const CUgraphNode* nodes, std::size_t count,
                                                const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  return AddKind<SignalKind>(handle, graph, nodes, count, params);
}
SIM_API(cuGraphExternalSemaphoresSignalNodeGetParams)(CUgraphNode node,
                                                      CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  return GetKind<SignalKind>(node, params);
}
SIM_API(cuGraphExternalSemaphoresSignalNodeSetParams)(
    CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  return SetKind<SignalKind>(node, params);
}
SIM_API(cuGraphExecExternalSemaphoresSignalNodeSetParams)(
    CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* params) {
  return SetExecKind<SignalKind>(exec, node, params);
}

SIM_API(cuGraphAddExternalSemaphoresWaitNode)(CUgraphNode* handle, CUgraph graph,
                                              const CUgraphNode* nodes, std::size_t count,
                                              const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  return AddKind<AwaitKind>(handle, graph, nodes, count, params);
}
SIM_API(cuGraphExternalSemaphoresWaitNodeGetParams)(CUgraphNode node,
                                                    CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  return GetKind<AwaitKind>(node, params);
}
SIM_API(cuGraphExternalSemaphoresWaitNodeSetParams)(CUgraphNode node,
                                                    const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  return SetKind<AwaitKind>(node, params);
}
SIM_API(cuGraphExecExternalSemaphoresWaitNodeSetParams)(
    CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS* params) {
  return SetExecKind<AwaitKind>(exec, node, params);
}

SIM_API(cuGraphAddBatchMemOpNode)(CUgraphNode* handle, CUgraph graph, const CUgraphNode* nodes,
                                  std::size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return AddKind<MemOpKind>(handle, graph, nodes, count, params);
}
SIM_API(cuGraphBatchMemOpNodeGetParams)(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return GetKind<MemOpKind>(node, params);
}
SIM_API(cuGraphBatchMemOpNodeSetParams)(CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return SetKind<MemOpKind>(node, params);
}
SIM_API(cuGraphExecBatchMemOpNodeSetParams)(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return SetExecKind<MemOpKind>(exec, node, params);
}
