// The functions of captures: beginning, ending, asking.
#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"

using namespace tessera::sim;

namespace {

CUresult CaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                     const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* count,
                     bool edges_asked) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  const Capture* capture = CaptureOf(*stream);
  if (capture == nullptr) {
    // Asking about the legacy stream is refused like work on it, but harms no capture.
    if (stream->legacy && BlockingStreamCaptures(*stream->context))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  *status =
      capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture->invalid) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = capture->graph->handle;
  // Lists that stay valid until the next change of the stream, as the interface says: one per
  // thread.
  thread_local constinit std::vector<CUgraphNode>* node_list = nullptr;
  thread_local constinit std::vector<CUgraphEdgeData>* edge_list = nullptr;
  if (node_list == nullptr) {
    node_list = new std::vector<CUgraphNode>;
    edge_list = new std::vector<CUgraphEdgeData>;
  }
  node_list->clear();
  edge_list->clear();
  bool plain = true;
  for (const CaptureTip& tip : stream->tips) {
    node_list->push_back(tip.node->handle);
    edge_list->push_back(tip.edge);
    plain = plain && tip.edge.type == 0 && tip.edge.from_port == 0 && tip.edge.to_port == 0;
  }
  if (!plain && nodes != nullptr && (!edges_asked || edges == nullptr))
    return CUDA_ERROR_LOSSY_QUERY;
  if (nodes != nullptr) *nodes = node_list->data();
  if (edges != nullptr) *edges = plain ? nullptr : edge_list->data();
  if (count != nullptr) *count = node_list->size();
  return CUDA_SUCCESS;
}

CUresult UpdateDependencies(CUstream handle, CUgraphNode* nodes, const CUgraphEdgeData* edges,
                            std::size_t count, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (nodes == nullptr && count != 0))
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  Capture* capture = CaptureOf(*stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<CaptureTip> tips;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = Find<GraphNode>(nodes[i]);
    if (node == nullptr || node->graph != capture->graph) return CUDA_ERROR_INVALID_VALUE;
    tips.push_back({node, edges != nullptr ? edges[i] : CUgraphEdgeData{}});
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tips.clear();
  AddTips(stream->tips, tips);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuStreamBeginCapture_v2)(CUstream handle, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  return BeginCapture(*stream, nullptr, {}, mode);
}

SIM_API(cuStreamBeginCapture)(CUstream handle) {
  return impl_cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIM_API(cuStreamBeginCaptureToGraph)(CUstream handle, CUgraph graph_handle,
                                     const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                                     std::size_t count, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  Graph* graph = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  SIM_TRY(FindGraph(graph_handle, &graph));
  if (nodes == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CaptureTip> tips;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = Find<GraphNode>(nodes[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    tips.push_back({node, edges != nullptr ? edges[i] : CUgraphEdgeData{}});
  }
  if (graph->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  return BeginCapture(*stream, graph, std::move(tips), mode);
}

SIM_API(cuStreamEndCapture)(CUstream handle, CUgraph* graph) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  return EndCapture(*stream, graph);
}

SIM_API(cuStreamIsCapturing)(CUstream handle, CUstreamCaptureStatus* status) {
  return CaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr, false);
}

SIM_API(cuStreamGetCaptureInfo)(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return CaptureInfo(handle, status, id, nullptr, nullptr, nullptr, nullptr, false);
}

SIM_API(cuStreamGetCaptureInfo_v2)(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes, std::size_t* count) {
  return CaptureInfo(handle, status, id, graph, nodes, nullptr, count, false);
}

SIM_API(cuStreamGetCaptureInfo_v3)(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  return CaptureInfo(handle, status, id, graph, nodes, edges, count, true);
}

SIM_API(cuStreamUpdateCaptureDependencies)(CUstream handle, CUgraphNode* nodes, std::size_t count,
                                           unsigned flags) {
  return UpdateDependencies(handle, nodes, nullptr, count, flags);
}

SIM_API(cuStreamUpdateCaptureDependencies_v2)(CUstream handle, CUgraphNode* nodes,
                                              const CUgraphEdgeData* edges, std::size_t count,
                                              unsigned flags) {
  return UpdateDependencies(handle, nodes, edges, count, flags);
}

SIM_API(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *mode = ExchangeCaptureMode(*mode);
  return CUDA_SUCCESS;
}
