// Graphs: work written down, to be launched many times.
//
// Thread safety: as with the driver, one graph is not to be changed by two threads at once; the
// mutex of graph.cc keeps captures and graph calls apart. Invariants:
//   1. Edges are acyclic and inside one graph; `before` and `behind` of the two ends agree.
//   2. A child graph and the bodies of a conditional node are owned by their node.
//   3. An executable graph owns a clone of its graph; nodes are matched by GraphNode::origin.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/cuda/handles.h"
#include "sim/cuda/launch.h"
#include "sim/cuda/work.h"

namespace tessera::sim {

struct Graph;
struct GraphNode;
struct UserObject;

struct GraphEdge {
  GraphNode* node = nullptr;
  CUgraphEdgeData data{};
};

struct NodeParams {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUcontext context{};
  KernelCall kernel;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUDA_HOST_NODE_PARAMS host{};
  CUevent event{};
  std::unique_ptr<Graph> child;
  std::vector<CUexternalSemaphore> semaphores;
  std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS> signals;
  std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> waits;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  std::vector<CUmemAccessDesc> alloc_access;
  CUdeviceptr freed = 0;
  std::vector<CUstreamBatchMemOpParams> mem_ops;
  unsigned mem_op_flags = 0;
  CUgraphConditionalHandle conditional = 0;
  CUgraphConditionalNodeType conditional_type = CU_GRAPH_COND_TYPE_IF;
  std::vector<std::unique_ptr<Graph>> bodies;
  std::vector<CUgraph> body_handles;

  NodeParams();
  ~NodeParams();
  NodeParams(NodeParams&&) noexcept;
  NodeParams& operator=(NodeParams&&) noexcept;
  NodeParams Clone() const;
};

struct GraphNode {
  static constexpr HandleKind kKind = HandleKind::kGraphNode;
  using Handle = CUgraphNode;

  CUgraphNode handle{};
  Graph* graph = nullptr;
  std::uint64_t number = 0;         // in order of making, unique in the process
  GraphNode* origin = nullptr;      // in a clone: the node it was cloned from
  std::uint64_t origin_number = 0;  // in a clone: the number of the first original
  bool enabled = true;
  NodeParams params;
  std::vector<GraphEdge> before, behind;
  std::unique_ptr<Stream> lane;  // where an executable graph's node runs
  Point done;                    // end of its last run
};

struct Graph {
  static constexpr HandleKind kKind = HandleKind::kGraph;
  using Handle = CUgraph;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CUgraph handle{};
  std::uint64_t id = 0, cloned_from = 0;  // 0: not a clone
  GraphNode* owner = nullptr;             // node whose child or body this is
  bool capturing = false;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in order of making
  std::map<UserObject*, unsigned> user_objects;
  std::vector<CUgraphConditionalHandle> conditionals;
};

// All that touches graphs holds this.
std::recursive_mutex& GraphMutex();

// A node after `before`; nullptr when a dependency belongs to another graph.
GraphNode* AddNode(Graph& graph, NodeParams params, const std::vector<GraphEdge>& before);
void RemoveNode(GraphNode& node);
std::unique_ptr<Graph> CloneGraph(const Graph& graph);
// False when the edges have a cycle. Nodes in an order in which each stands after those that it
// depends on.
bool InOrder(const Graph& graph, std::vector<GraphNode*>* order);
// True when `to` can be reached from `from`.
bool Reaches(const GraphNode& from, const GraphNode& to);

CUresult FindGraph(CUgraph handle, Graph** graph);

// Memory of allocation nodes (graph_memory.cc): addresses are fixed when the node is made; memory
// is taken at the first launch and stays until it is trimmed, or no node names it and it is freed.
CUresult PlaceAllocation(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS& params);
void RetainPlacement(CUdeviceptr address);
void ForgetPlacement(CUdeviceptr address);
CUresult BackAllocation(
    CUdeviceptr address);  // a launch allocates: INVALID_VALUE when it is not free
CUresult ReleaseAllocation(CUdeviceptr address);  // a free node, or a free of the program;
                                                  // INVALID_VALUE when not allocated
bool IsGraphAllocation(CUdeviceptr address);
bool AllocationInUse(CUdeviceptr address);
void EndGraphMemoryOf(Context& context);

// Work of a copy or fill node (graph_copy.cc).
CUresult CheckCopy(const CUDA_MEMCPY3D& copy);
CUresult CheckFill(const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult CopyWork(const Context& context, const CUDA_MEMCPY3D& copy, Work* work);
CUresult FillWork(const Context& context, const CUDA_MEMSET_NODE_PARAMS& fill, Work* work);

struct Conditional {
  static constexpr HandleKind kKind = HandleKind::kConditional;
  using Handle = CUgraphConditionalHandle;
  CUgraphConditionalHandle handle{};
  std::uint64_t graph_id = 0;
  unsigned default_value = 0, flags = 0;
};

struct GraphExec {
  static constexpr HandleKind kKind = HandleKind::kGraphExec;
  using Handle = CUgraphExec;
  CUgraphExec handle{};
  std::unique_ptr<Graph> graph;
  std::uint64_t flags = 0;
  std::mutex mutex;  // launches
  Point last;        // end of the last launch
};

// The node of an executable graph that stands for a node of the graph it was made from.
GraphNode* NodeInExec(GraphExec& exec, const GraphNode& node);
// Reads the parameters of a cuGraphAddNode-like call; `graph` gets what the node will own.
CUresult ReadNodeParams(const CUgraphNodeParams& from, Context& context, NodeParams* to);
CUresult ReadKernelParams(const CUDA_KERNEL_NODE_PARAMS& from, Context& context, KernelCall* to);
CUresult LaunchGraph(GraphExec& exec, Stream& stream);

}  // namespace tessera::sim
