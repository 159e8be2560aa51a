// Streams: order and time of work. stream.cc owns the implementation; memory and copies use this
// interface.
//
// Thread safety: all functions may be called from any thread.
// Units: nanoseconds of CLOCK_MONOTONIC (NowNs).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "sim/cuda/context.h"
#include "sim/cuda/cuda_abi.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

enum class EngineKind : int {
  kNone = -1,
  kCompute = 0,
  kToCard = 1,
  kFromCard = 2
};  // as NodeState engines

struct Capture;       // a stream's capture in progress (capture.h)
struct Work;          // a piece of work and the points that it comes after (work.h)
struct Moment;        // an end that is not known yet (work.h)
struct GreenContext;  // green_context.cc

struct Event;
struct GraphNode;

// One node that the stream's next captured node depends on.
struct CaptureTip {
  GraphNode* node = nullptr;
  CUgraphEdgeData edge{};
};

struct Stream {
  static constexpr HandleKind kKind = HandleKind::kStream;
  using Handle = CUstream;

  CUstream handle{};
  std::uint64_t id = 0;  // unique in the process
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  GreenContext* green = nullptr;
  std::atomic<std::uint64_t> busy_until_ns{0};
  std::atomic<Capture*> capture{nullptr};
  bool legacy = false;    // waits for the context's blocking streams, and they for it
  bool internal = false;  // a lane of a graph: no handle, no queue depth, no barriers
  std::atomic<std::uint32_t> owner_thread{0};  // per-thread default stream of this thread, 0 none

  // Guarded by the mutex of work.cc.
  std::uint64_t effects_until_ns =
      0;  // some effect before the tail happens at its time, the last one then
  std::deque<std::unique_ptr<Work>>
      waiting;                      // held back by a wait on memory or a host function, in order
  bool dropped = false;             // destroyed, goes with the last of `waiting`
  bool running = false;             // the first of `waiting` runs its effect
  std::shared_ptr<Moment> last;     // end of the last of `waiting`
  std::vector<std::uint64_t> ends;  // ring: when the last works end, for the queue's depth
  std::uint64_t ended = 0;

  // Guarded by the mutex of capture.cc.
  std::vector<CaptureTip> tips;

  std::vector<CUstreamAttrValue> attributes;  // by id, empty until one is set
};

inline constexpr int kLeastPriority = 0,
                     kGreatestPriority = -5;  // six levels, as cards since Pascal report

CUresult MakeStream(Context& context, unsigned flags, int priority, GreenContext* green,
                    CUstream* handle);

// What a handle names in the current context: NULL the default stream of this call's form,
// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a created stream. INVALID_HANDLE for anything else;
// errors of CurrentContext.
CUresult FindStream(CUstream handle, Stream** stream);

// Puts work on a stream: `duration_ns` on an engine of the stream's card (kNone: takes no engine,
// only order), after everything that is on the stream. `effect` (may be empty) runs exactly once:
// at once when nothing before it on the stream is held back by a wait on memory or a host function,
// else when its turn comes.
CUresult Enqueue(Stream& stream, EngineKind engine, std::uint64_t duration_ns,
                 std::function<void()> effect);

// Waits until everything that is on the stream is done.
CUresult Synchronize(Stream& stream);
// Waits for all streams of a context.
CUresult SynchronizeContext(Context& context);
// The same for a context that ends, whatever state it is in.
void SynchronizeForEnd(Context& context);

inline bool Capturing(const Stream& stream) {
  return stream.capture.load(std::memory_order_acquire) != nullptr;
}

// Adds a node to the graph that the stream captures, in the place of doing the work.
CUresult CaptureCopy(Stream& stream, const CUDA_MEMCPY3D& copy);
CUresult CaptureMemset(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& memset);
CUresult CaptureAlloc(Stream& stream, CUDA_MEM_ALLOC_NODE_PARAMS& alloc);  // fills in dptr
CUresult CaptureFree(Stream& stream, CUdeviceptr pointer);

// For calls that are illegal while a capture is in progress that could be disturbed by them
// (cuMemAlloc, cuMemFree, synchronising copies): STREAM_CAPTURE_UNSUPPORTED, after invalidating the
// captures concerned, by the thread's capture mode.
CUresult ForbiddenInCapture();

}  // namespace tessera::sim
