// Graphs as a whole: making, cloning, ending, nodes and edges.
#include <cstdio>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"

namespace tessera::sim {
namespace {

bool Plain(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

// Lists of the driver: with a NULL array only the number; with room left over, NULLs.
template <typename List, typename Use>
CUresult Fill(const List& list, bool have_arrays, std::size_t* count, Use use) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!have_arrays) {
    *count = list.size();
    return CUDA_SUCCESS;
  }
  const std::size_t room = *count;
  for (std::size_t i = 0; i < room; ++i) use(i, i < list.size() ? &list[i] : nullptr);
  if (room > list.size()) *count = list.size();
  return CUDA_SUCCESS;
}

struct WholeEdge {
  GraphNode *from, *to;
  CUgraphEdgeData data;
};

CUresult Edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
               std::size_t* count) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(handle, &graph));
  if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  std::vector<WholeEdge> edges;
  bool lossy = false;
  for (const auto& node : graph->nodes) {
    for (const GraphEdge& edge : node->before) {
      edges.push_back({edge.node, node.get(), edge.data});
      lossy = lossy || !Plain(edge.data);
    }
  }
  if (lossy && from != nullptr && data == nullptr) return CUDA_ERROR_LOSSY_QUERY;
  return Fill(edges, from != nullptr, count, [&](std::size_t i, const WholeEdge* edge) {
    from[i] = edge != nullptr ? edge->from->handle : nullptr;
    to[i] = edge != nullptr ? edge->to->handle : nullptr;
    if (data != nullptr) data[i] = edge != nullptr ? edge->data : CUgraphEdgeData{};
  });
}

CUresult Neighbours(CUgraphNode handle, bool before, CUgraphNode* nodes, CUgraphEdgeData* data,
                    std::size_t* count) {
  GraphNode* node = Find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  const std::vector<GraphEdge>& edges = before ? node->before : node->behind;
  if (nodes != nullptr && data == nullptr) {
    for (const GraphEdge& edge : edges) {
      if (!Plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  return Fill(edges, nodes != nullptr, count, [&](std::size_t i, const GraphEdge* edge) {
    nodes[i] = edge != nullptr ? edge->node->handle : nullptr;
    if (data != nullptr) data[i] = edge != nullptr ? edge->data : CUgraphEdgeData{};
  });
}

CUresult EndsOf(CUgraph graph_handle, const CUgraphNode* from, const CUgraphNode* to,
                std::size_t count, std::vector<std::pair<GraphNode*, GraphNode*>>* out) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode *a = Find<GraphNode>(from[i]), *b = Find<GraphNode>(to[i]);
    if (a == nullptr || b == nullptr || a->graph != graph || b->graph != graph || a == b)
      return CUDA_ERROR_INVALID_VALUE;
    out->emplace_back(a, b);
  }
  return CUDA_SUCCESS;
}

bool HasEdge(const GraphNode& from, const GraphNode& to) {
  for (const GraphEdge& edge : to.before) {
    if (edge.node == &from) return true;
  }
  return false;
}

CUresult AddEdges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                  const CUgraphEdgeData* data, std::size_t count) {
  std::lock_guard lock(GraphMutex());
  std::vector<std::pair<GraphNode*, GraphNode*>> ends;
  SIM_TRY(EndsOf(graph, from, to, count, &ends));
  for (const auto& [a, b] : ends) {
    if (HasEdge(*a, *b)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    auto [a, b] = ends[i];
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    b->before.push_back({a, edge});
    a->behind.push_back({b, edge});
  }
  return CUDA_SUCCESS;
}

CUresult RemoveEdges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                     std::size_t count) {
  std::lock_guard lock(GraphMutex());
  std::vector<std::pair<GraphNode*, GraphNode*>> ends;
  SIM_TRY(EndsOf(graph, from, to, count, &ends));
  for (const auto& [a, b] : ends) {
    if (!HasEdge(*a, *b)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& ab : ends) {
    GraphNode *a = ab.first, *b = ab.second;
    std::erase_if(b->before, [&](const GraphEdge& edge) { return edge.node == a; });
    std::erase_if(a->behind, [&](const GraphEdge& edge) { return edge.node == b; });
  }
  return CUDA_SUCCESS;
}

const char* KindName(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return "EXT_SEMAS_SIGNAL";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "EXT_SEMAS_WAIT";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
  }
  return "UNKNOWN";
}

void PrintDot(std::FILE* file, const Graph& graph) {
  std::fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n",
               static_cast<unsigned long long>(graph.id),
               static_cast<unsigned long long>(graph.id));
  const auto number = [](const GraphNode& node) {
    return static_cast<unsigned long long>(node.number);
  };
  for (const auto& node : graph.nodes) {
    std::fprintf(file, "\"node_%llu\"[label=\"%llu %s\"];\n", number(*node), number(*node),
                 KindName(node->params.type));
    if (node->params.child != nullptr) PrintDot(file, *node->params.child);
    for (const auto& body : node->params.bodies) PrintDot(file, *body);
  }
  for (const auto& node : graph.nodes) {
    for (const GraphEdge& edge : node->before) {
      std::fprintf(file, "\"node_%llu\" -> \"node_%llu\";\n", number(*edge.node), number(*node));
    }
  }
  std::fprintf(file, "}\n");
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuGraphCreate)(CUgraph* handle, unsigned flags) {
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = (new Graph)->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroy)(CUgraph handle) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(handle, &graph));
  if (graph->owner != nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  delete graph;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphClone)(CUgraph* handle, CUgraph from) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(from, &graph));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  *handle = CloneGraph(*graph).release()->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeFindInClone)(CUgraphNode* handle, CUgraphNode original_handle,
                                CUgraph clone_handle) {
  Graph* clone = nullptr;
  SIM_TRY(FindGraph(clone_handle, &clone));
  GraphNode* original = Find<GraphNode>(original_handle);
  if (handle == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  for (const auto& node : clone->nodes) {
    if (node->origin != original) continue;
    *handle = node->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphNodeGetType)(CUgraphNode handle, CUgraphNodeType* type) {
  GraphNode* node = Find<GraphNode>(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->params.type;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphGetNodes)(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(handle, &graph));
  std::lock_guard lock(GraphMutex());
  return Fill(graph->nodes, nodes != nullptr, count,
              [&](std::size_t i, const std::unique_ptr<GraphNode>* node) {
                nodes[i] = node != nullptr ? (*node)->handle : nullptr;
              });
}

SIM_API(cuGraphGetRootNodes)(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(handle, &graph));
  std::lock_guard lock(GraphMutex());
  std::vector<GraphNode*> roots;
  for (const auto& node : graph->nodes) {
    if (node->before.empty()) roots.push_back(node.get());
  }
  return Fill(roots, nodes != nullptr, count, [&](std::size_t i, GraphNode* const* node) {
    nodes[i] = node != nullptr ? (*node)->handle : nullptr;
  });
}

SIM_API(cuGraphGetEdges_v2)(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* data, std::size_t* count) {
  return Edges(graph, from, to, data, count);
}
SIM_API(cuGraphGetEdges)(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return Edges(graph, from, to, nullptr, count);
}
SIM_API(cuGraphNodeGetDependencies_v2)(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                       std::size_t* count) {
  return Neighbours(node, true, nodes, data, count);
}
SIM_API(cuGraphNodeGetDependencies)(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  return Neighbours(node, true, nodes, nullptr, count);
}
SIM_API(cuGraphNodeGetDependentNodes_v2)(CUgraphNode node, CUgraphNode* nodes,
                                         CUgraphEdgeData* data, std::size_t* count) {
  return Neighbours(node, false, nodes, data, count);
}
SIM_API(cuGraphNodeGetDependentNodes)(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  return Neighbours(node, false, nodes, nullptr, count);
}
SIM_API(cuGraphAddDependencies_v2)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, std::size_t count) {
  return AddEdges(graph, from, to, data, count);
}
SIM_API(cuGraphAddDependencies)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                std::size_t count) {
  return AddEdges(graph, from, to, nullptr, count);
}
SIM_API(cuGraphRemoveDependencies_v2)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, std::size_t count) {
  return RemoveEdges(graph, from, to, count);
}
SIM_API(cuGraphRemoveDependencies)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   std::size_t count) {
  return RemoveEdges(graph, from, to, count);
}

SIM_API(cuGraphDestroyNode)(CUgraphNode handle) {
  GraphNode* node = Find<GraphNode>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  RemoveNode(*node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDebugDotPrint)(CUgraph handle, const char* path, unsigned) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(handle, &graph));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::lock_guard lock(GraphMutex());
  std::fprintf(file, "digraph dot {\n");
  PrintDot(file, *graph);
  std::fprintf(file, "}\n");
  std::fclose(file);
  return CUDA_SUCCESS;
}
