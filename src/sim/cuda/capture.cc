#include "sim/cuda/capture.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "sim/cuda/api.h"
#include "sim/cuda/event.h"

namespace tessera::sim {
namespace {

std::uint64_t next_capture_id = 1;  // guarded by the graph mutex, like the list
std::atomic<int> live_captures{0};
std::vector<Capture*>& Captures() {
  static auto* captures = new std::vector<Capture*>;
  return *captures;
}

thread_local constinit CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::uint32_t ThreadId() { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

using Lock = std::lock_guard<std::recursive_mutex>;

CUresult Invalidate(Capture& capture, CUresult why) {
  capture.invalid = true;
  return why;
}

void Leave(Stream& stream) {
  stream.capture.store(nullptr, std::memory_order_release);
  stream.tips.clear();
}

// Takes the capture off its streams and the list. The graph is left to the caller.
void Dissolve(Capture& capture) {
  for (Stream* stream : capture.streams) Leave(*stream);
  std::erase(Captures(), &capture);
  live_captures.fetch_sub(1);
  capture.graph->capturing = false;
}

// Captures in which a blocking stream of the context takes part.
std::vector<Capture*> BlockingCaptures(const Context& context) {
  std::vector<Capture*> found;
  for (Capture* capture : Captures()) {
    if (std::any_of(capture->streams.begin(), capture->streams.end(), [&](const Stream* stream) {
          return stream->context == &context && (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
        })) {
      found.push_back(capture);
    }
  }
  return found;
}

}  // namespace

Capture* CaptureOf(const Stream& stream) { return stream.capture.load(std::memory_order_acquire); }

bool BlockingStreamCaptures(const Context& context) { return !BlockingCaptures(context).empty(); }

CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

void AddTips(std::vector<CaptureTip>& tips, const std::vector<CaptureTip>& more) {
  for (const CaptureTip& tip : more) {
    if (std::none_of(tips.begin(), tips.end(),
                     [&](const CaptureTip& have) { return have.node == tip.node; })) {
      tips.push_back(tip);
    }
  }
}

CUresult BeginCapture(Stream& stream, Graph* graph, std::vector<CaptureTip> tips,
                      CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Lock lock(GraphMutex());
  if (Capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  auto* capture = new Capture;
  capture->id = next_capture_id++;
  capture->own_graph = graph == nullptr;
  capture->graph = graph != nullptr ? graph : new Graph;
  capture->graph->capturing = true;
  capture->mode = mode;
  capture->origin = &stream;
  capture->thread = ThreadId();
  capture->streams.push_back(&stream);
  stream.tips = std::move(tips);
  Captures().push_back(capture);
  live_captures.fetch_add(1);
  stream.capture.store(capture, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult EndCapture(Stream& stream, CUgraph* graph) {
  Lock lock(GraphMutex());
  Capture* capture = CaptureOf(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThreadId()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    // Every other stream's work must lie before what the first stream has.
    for (Stream* other : capture->streams) {
      if (other == &stream) continue;
      for (const CaptureTip& tip : other->tips) {
        const bool joined =
            std::any_of(stream.tips.begin(), stream.tips.end(),
                        [&](const CaptureTip& own) { return Reaches(*tip.node, *own.node); });
        if (!joined) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
    }
  }
  Dissolve(*capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph->handle;
  } else if (capture->own_graph) {
    delete capture->graph;
  }
  delete capture;
  return result;
}

CUresult CaptureNode(Stream& stream, NodeParams params, GraphNode** out) {
  Lock lock(GraphMutex());
  Capture* capture = CaptureOf(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphEdge> before;
  for (const CaptureTip& tip : stream.tips) before.push_back({tip.node, tip.edge});
  GraphNode* node = AddNode(*capture->graph, std::move(params), before);
  if (node == nullptr) return Invalidate(*capture, CUDA_ERROR_UNKNOWN);
  stream.tips.assign(1, {node, {}});
  if (out != nullptr) *out = node;
  return CUDA_SUCCESS;
}

CUresult RefuseCaptured(Stream& stream) {
  if (!Capturing(stream)) return CUDA_SUCCESS;
  Lock lock(GraphMutex());
  Capture* capture = CaptureOf(stream);
  return capture == nullptr ? CUDA_SUCCESS
                            : Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult RefuseLegacyCapture(Stream& stream) {
  if (!stream.legacy || live_captures.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  Lock lock(GraphMutex());
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : BlockingCaptures(*stream.context)) {
    result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return result;
}

CUresult RefuseContextCaptured(Context& context) {
  if (live_captures.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  Lock lock(GraphMutex());
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Captures()) {
    const bool here =
        std::any_of(capture->streams.begin(), capture->streams.end(),
                    [&](const Stream* stream) { return stream->context == &context; });
    if (here) result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult ForbiddenInCapture() {
  if (live_captures.load(std::memory_order_acquire) == 0 ||
      thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  Lock lock(GraphMutex());
  const std::uint32_t thread = ThreadId();
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Captures()) {
    const bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool others = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || others) result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult CaptureRecord(Stream& stream, Event& event, bool external) {
  if (external) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    node.context = stream.context->handle;
    node.event = event.handle;
    return CaptureNode(stream, std::move(node));
  }
  Lock lock(GraphMutex());
  Capture* capture = CaptureOf(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::lock_guard event_lock(event.mutex);
  event.capture_id = capture->id;
  event.captured = stream.tips;
  return CUDA_SUCCESS;
}

CUresult CaptureWait(Stream& stream, Event& event, bool external) {
  if (external) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    node.context = stream.context->handle;
    node.event = event.handle;
    return CaptureNode(stream, std::move(node));
  }
  Lock lock(GraphMutex());
  std::lock_guard event_lock(event.mutex);
  Capture* capture = CaptureOf(stream);
  Capture* from = nullptr;
  for (Capture* other : Captures()) {
    if (other->id == event.capture_id) from = other;
  }
  if (event.capture_id != 0 && from == nullptr) {
    // Recorded in a capture that has ended.
    return capture != nullptr ? Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                              : CUDA_ERROR_CAPTURED_EVENT;
  }
  if (from == nullptr) {
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    // An event that was never recorded orders nothing; any other lies outside the capture.
    if (!event.recorded) return CUDA_SUCCESS;
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (from->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (capture == nullptr) {
    if (stream.legacy) return Invalidate(*from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    from->streams.push_back(&stream);
    stream.tips = event.captured;
    stream.capture.store(from, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  if (capture != from) {
    capture->invalid = true;
    return Invalidate(*from, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  AddTips(stream.tips, event.captured);
  return CUDA_SUCCESS;
}

void DropFromCapture(Stream& stream) {
  if (!Capturing(stream)) return;
  Lock lock(GraphMutex());
  Capture* capture = CaptureOf(stream);
  if (capture == nullptr) return;
  capture->invalid = true;
  if (capture->origin == &stream) {
    Dissolve(*capture);
    if (capture->own_graph) delete capture->graph;
    delete capture;
    return;
  }
  std::erase(capture->streams, &stream);
  Leave(stream);
}

void EndCapturesOf(Context& context) {
  if (live_captures.load(std::memory_order_acquire) == 0) return;
  Lock lock(GraphMutex());
  const std::vector<Capture*> all = Captures();
  for (Capture* capture : all) {
    if (capture->origin->context != &context) continue;
    Dissolve(*capture);
    if (capture->own_graph) delete capture->graph;
    delete capture;
  }
}

CUresult CaptureCopy(Stream& stream, const CUDA_MEMCPY3D& copy) {
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.context = stream.context->handle;
  node.copy = copy;
  return CaptureNode(stream, std::move(node));
}

CUresult CaptureMemset(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& memset) {
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_MEMSET;
  node.context = stream.context->handle;
  node.fill = memset;
  return CaptureNode(stream, std::move(node));
}

CUresult CaptureAlloc(Stream& stream, CUDA_MEM_ALLOC_NODE_PARAMS& alloc) {
  SIM_TRY(PlaceAllocation(*stream.context, alloc));
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  node.context = stream.context->handle;
  node.alloc = alloc;
  node.alloc_access.assign(alloc.accessDescs, alloc.accessDescs + alloc.accessDescCount);
  node.alloc.accessDescs = nullptr;
  RetainPlacement(alloc.dptr);
  const CUresult result = CaptureNode(stream, std::move(node));
  ForgetPlacement(alloc.dptr);  // the node has its own share
  return result;
}

CUresult CaptureFree(Stream& stream, CUdeviceptr pointer) {
  if (!IsGraphAllocation(pointer)) return CUDA_ERROR_INVALID_VALUE;
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  node.context = stream.context->handle;
  node.freed = pointer;
  return CaptureNode(stream, std::move(node));
}

}  // namespace tessera::sim
