// Capture: streams that write a graph in the place of working.
//
// Rules (CUDA driver API, "cuStreamBeginCapture"): a capture begins on one stream, spreads to
// streams that wait for events recorded in it, must be joined back and ended on the first. What
// would order captured work against other work is refused and makes the capture invalid.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cuda/graph.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {

struct Capture {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  bool own_graph = true;  // false: cuStreamBeginCaptureToGraph
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalid = false;
  Stream* origin = nullptr;
  std::uint32_t thread = 0;
  std::vector<Stream*> streams;  // all that take part
};

// The graph is `graph`, or an own one when that is null.
CUresult BeginCapture(Stream& stream, Graph* graph, std::vector<CaptureTip> tips,
                      CUstreamCaptureMode mode);
CUresult EndCapture(Stream& stream, CUgraph* graph);
// With the graph mutex held, these three. nullptr when the stream does not capture.
Capture* CaptureOf(const Stream& stream);
// Some capture has a blocking stream of the context in it.
bool BlockingStreamCaptures(const Context& context);
// Adds those of `more` whose nodes are not among `tips` yet.
void AddTips(std::vector<CaptureTip>& tips, const std::vector<CaptureTip>& more);
// This thread's mode; answers the one before.
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);

// Adds a node after the stream's tips and makes it the tip. The stream must be capturing.
CUresult CaptureNode(Stream& stream, NodeParams params, GraphNode** node = nullptr);

// CUDA_SUCCESS when the stream does not capture; else makes the capture invalid and answers
// STREAM_CAPTURE_UNSUPPORTED.
CUresult RefuseCaptured(Stream& stream);
// For a legacy stream: STREAM_CAPTURE_IMPLICIT, and the captures made invalid, when a blocking
// stream of its context captures.
CUresult RefuseLegacyCapture(Stream& stream);
// For cuCtxSynchronize: STREAM_CAPTURE_UNSUPPORTED when any stream of the context captures.
CUresult RefuseContextCaptured(Context& context);

// An event's part: what a wait or record means while capturing.
CUresult CaptureRecord(Stream& stream, Event& event, bool external);
CUresult CaptureWait(Stream& stream, Event& event, bool external);

void DropFromCapture(Stream& stream);
void EndCapturesOf(Context& context);

}  // namespace tessera::sim
