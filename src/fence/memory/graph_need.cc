// How much memory the allocation nodes of a graph may take: what their addresses cover.
#include "charge/charge.h"
#include "memory/graphs.h"
#include "memory/live.h"

namespace tessera::fence {
namespace {

constexpr int kMostNested = 64;
constexpr std::uint64_t kNodeBlock = std::uint64_t{2} << 20;

struct Span {
  std::uint64_t device = 0, begin = 0, end = 0;
  bool operator<(const Span& other) const {
    return device != other.device ? device < other.device : begin < other.begin;
  }
};

// Spans in a mapping of their own.
class Spans {
 public:
  Spans() = default;
  ~Spans() {
    if (data_ != nullptr) os::Unmap(data_, capacity_ * sizeof(Span));
  }
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;
  bool Add(const Span& span) {
    if (count_ == capacity_ && !Grow()) return false;
    data_[count_++] = span;
    return true;
  }
  // By device and begin: heapsort, which needs no memory.
  void Sort() {
    for (std::uint64_t i = count_ / 2; i-- > 0;) Sink(i, count_);
    for (std::uint64_t end = count_; end-- > 1;) {
      Swap(0, end);
      Sink(0, end);
    }
  }
  const Span* begin() const { return data_; }
  const Span* end() const { return data_ + count_; }

 private:
  void Swap(std::uint64_t a, std::uint64_t b) {
    const Span kept = data_[a];
    data_[a] = data_[b];
    data_[b] = kept;
  }
  void Sink(std::uint64_t at, std::uint64_t end) {
    for (std::uint64_t child = 2 * at + 1; child < end; child = 2 * at + 1) {
      if (child + 1 < end && data_[child] < data_[child + 1]) ++child;
      if (!(data_[at] < data_[child])) return;
      Swap(at, child);
      at = child;
    }
  }
  bool Grow() {
    const std::uint64_t capacity = capacity_ == 0 ? 128 : capacity_ * 2;
    auto* data = static_cast<Span*>(os::MapPrivate(capacity * sizeof(Span)));
    if (data == nullptr) return false;
    for (std::uint64_t i = 0; i < count_; ++i) data[i] = data_[i];
    if (data_ != nullptr) os::Unmap(data_, capacity_ * sizeof(Span));
    data_ = data;
    capacity_ = capacity;
    return true;
  }
  Span* data_ = nullptr;
  std::uint64_t count_ = 0, capacity_ = 0;
};

bool Collect(CUgraph graph, Spans* spans, int depth);

bool CollectNode(CUgraphNode node, Spans* spans, int depth) {
  CUgraphNodeType type;
  if (real::cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    return real::cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
           Collect(child, spans, depth + 1);
  }
  if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return true;
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  if (real::cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS) return false;
  if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return true;
  const int device = params.poolProps.location.id;
  const std::uint64_t bytes = params.bytesize;
  if (device < 0 || device >= kGraphDevices || bytes > contract::kMaxBytes) return false;
  const std::uint64_t begin = params.dptr / kNodeBlock * kNodeBlock;
  const std::uint64_t end = (params.dptr + bytes + kNodeBlock - 1) / kNodeBlock * kNodeBlock;
  return spans->Add({static_cast<std::uint64_t>(device), begin, end});
}

// Child graphs cannot hold memory nodes before CUDA 12.9, later ones are followed.
bool Collect(CUgraph graph, Spans* spans, int depth) {
  std::size_t count = 0;
  if (depth > kMostNested) return false;
  // A graph that cannot be looked at is for the driver to refuse.
  if (real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return true;
  const std::size_t bytes = count * sizeof(CUgraphNode);
  auto* nodes = static_cast<CUgraphNode*>(os::MapPrivate(bytes));
  if (nodes == nullptr) return false;
  bool good = real::cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS;
  for (std::size_t i = 0; good && i < count; ++i) good = CollectNode(nodes[i], spans, depth);
  os::Unmap(nodes, bytes);
  return good;
}

}  // namespace

GraphNeed NeedOf(CUgraph graph) {
  GraphNeed need;
  Spans spans;
  need.unknown = !Collect(graph, &spans, 0);
  spans.Sort();
  std::uint64_t device = kGraphDevices, covered = 0;
  for (const Span& span : spans) {
    if (span.device != device) covered = 0;
    device = span.device;
    const std::uint64_t begin = span.begin > covered ? span.begin : covered;
    if (span.end <= begin) continue;
    need.bytes[device] += span.end - begin;
    need.devices |= std::uint64_t{1} << device;
    covered = span.end;
  }
  return need;
}

}  // namespace tessera::fence
