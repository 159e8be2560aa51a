#include "sim/cuda/graph.h"

#include <algorithm>
#include <cstdlib>
#include <queue>

#include "sim/cuda/graph_user_object.h"

namespace tessera::sim {
namespace {
std::uint64_t next_graph_id = 1, next_node_number = 1;  // guarded by the graph mutex
}  // namespace

std::recursive_mutex& GraphMutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

NodeParams::NodeParams() = default;
NodeParams::~NodeParams() = default;
NodeParams::NodeParams(NodeParams&&) noexcept = default;
NodeParams& NodeParams::operator=(NodeParams&&) noexcept = default;

NodeParams NodeParams::Clone() const {
  NodeParams copy;
  copy.type = type;
  copy.context = context;
  copy.kernel = kernel;
  copy.copy = this->copy;
  copy.fill = fill;
  copy.host = host;
  copy.event = event;
  copy.semaphores = semaphores;
  copy.signals = signals;
  copy.waits = waits;
  copy.alloc = alloc;
  copy.alloc_access = alloc_access;
  copy.freed = freed;
  copy.mem_ops = mem_ops;
  copy.mem_op_flags = mem_op_flags;
  copy.conditional = conditional;
  copy.conditional_type = conditional_type;
  if (child != nullptr) copy.child = CloneGraph(*child);
  for (const auto& body : bodies) {
    copy.bodies.push_back(CloneGraph(*body));
    copy.body_handles.push_back(copy.bodies.back()->handle);
  }
  return copy;
}

Graph::Graph() {
  std::lock_guard lock(GraphMutex());
  id = next_graph_id++;
  handle = NewHandle(this);
}

Graph::~Graph() {
  std::lock_guard lock(GraphMutex());
  for (const auto& node : nodes) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) ForgetPlacement(node->params.alloc.dptr);
    RemoveHandle<GraphNode>(node->handle);
  }
  for (const auto& [object, count] : user_objects) ReleaseUserObject(*object, count);
  RemoveHandle<Graph>(handle);
}

GraphNode* AddNode(Graph& graph, NodeParams params, const std::vector<GraphEdge>& before) {
  std::lock_guard lock(GraphMutex());
  for (const GraphEdge& edge : before) {
    if (edge.node == nullptr || edge.node->graph != &graph) return nullptr;
  }
  auto made = std::make_unique<GraphNode>();
  GraphNode* node = made.get();
  node->graph = &graph;
  node->number = node->origin_number = next_node_number++;
  node->params = std::move(params);
  node->handle = NewHandle(node);
  if (node->params.child != nullptr) node->params.child->owner = node;
  for (const auto& body : node->params.bodies) body->owner = node;
  if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) RetainPlacement(node->params.alloc.dptr);
  node->before = before;
  for (const GraphEdge& edge : before) edge.node->behind.push_back({node, edge.data});
  graph.nodes.push_back(std::move(made));
  return node;
}

void RemoveNode(GraphNode& node) {
  std::lock_guard lock(GraphMutex());
  for (const GraphEdge& edge : node.before) {
    std::erase_if(edge.node->behind, [&](const GraphEdge& back) { return back.node == &node; });
  }
  for (const GraphEdge& edge : node.behind) {
    std::erase_if(edge.node->before, [&](const GraphEdge& back) { return back.node == &node; });
  }
  RemoveHandle<GraphNode>(node.handle);
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) ForgetPlacement(node.params.alloc.dptr);
  std::erase_if(node.graph->nodes, [&](const auto& owned) { return owned.get() == &node; });
}

std::unique_ptr<Graph> CloneGraph(const Graph& graph) {
  std::lock_guard lock(GraphMutex());
  auto clone = std::make_unique<Graph>();
  clone->cloned_from = graph.id;
  std::map<const GraphNode*, GraphNode*> made;
  for (const auto& node : graph.nodes) {
    GraphNode* copy = AddNode(*clone, node->params.Clone(), {});
    copy->origin = node.get();
    copy->origin_number = node->origin_number;
    copy->enabled = node->enabled;
    made[node.get()] = copy;
  }
  for (const auto& node : graph.nodes) {
    for (const GraphEdge& edge : node->before) {
      made[node.get()]->before.push_back({made[edge.node], edge.data});
      made[edge.node]->behind.push_back({made[node.get()], edge.data});
    }
  }
  for (const auto& [object, count] : graph.user_objects) {
    RetainUserObject(*object, 1);
    clone->user_objects[object] = 1;
  }
  return clone;
}

bool InOrder(const Graph& graph, std::vector<GraphNode*>* order) {
  std::lock_guard lock(GraphMutex());
  const auto later = [](const GraphNode* a, const GraphNode* b) { return a->number > b->number; };
  std::priority_queue<GraphNode*, std::vector<GraphNode*>, decltype(later)> ready(later);
  std::map<const GraphNode*, std::size_t> open;
  for (const auto& node : graph.nodes) {
    open[node.get()] = node->before.size();
    if (node->before.empty()) ready.push(node.get());
  }
  order->clear();
  while (!ready.empty()) {
    GraphNode* node = ready.top();
    ready.pop();
    order->push_back(node);
    for (const GraphEdge& edge : node->behind) {
      if (--open[edge.node] == 0) ready.push(edge.node);
    }
  }
  return order->size() == graph.nodes.size();
}

bool Reaches(const GraphNode& from, const GraphNode& to) {
  std::vector<const GraphNode*> open{&from};
  std::map<const GraphNode*, bool> seen;
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (node == &to) return true;
    for (const GraphEdge& edge : node->behind) {
      if (!seen[edge.node]) {
        seen[edge.node] = true;
        open.push_back(edge.node);
      }
    }
  }
  return false;
}

CUresult FindGraph(CUgraph handle, Graph** graph) {
  *graph = Find<Graph>(handle);
  return *graph != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tessera::sim
