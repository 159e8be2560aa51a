// Streams: order and time of work. stream.cc owns the implementation; memory and copies use this interface.
//
// Thread safety: all functions may be called from any thread.
// Units: nanoseconds of CLOCK_MONOTONIC (NowNs).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "sim/cuda/context.h"
#include "sim/cuda/cuda_abi.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

enum class EngineKind : int { kNone = -1, kCompute = 0, kToCard = 1, kFromCard = 2 };  // as NodeState engines

struct Capture;  // a stream's capture in progress (capture.h)

struct Stream {
  static constexpr HandleKind kKind = HandleKind::kStream;
  using Handle = CUstream;

  CUstream handle{};
  std::uint64_t id = 0;  // unique in the process
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::atomic<std::uint64_t> busy_until_ns{0};
  std::atomic<Capture*> capture{nullptr};
};

// What a handle names in the current context: NULL the default stream of this call's form, CU_STREAM_LEGACY,
// CU_STREAM_PER_THREAD, or a created stream. INVALID_HANDLE for anything else; errors of CurrentContext.
CUresult FindStream(CUstream handle, Stream** stream);

// Puts work on a stream: `duration_ns` on an engine of the stream's card (kNone: takes no engine, only order), after
// everything that is on the stream. `effect` (may be empty) runs exactly once: at once when nothing before it on the stream is held back
// by a wait on memory or a host function, else when its turn comes.
CUresult Enqueue(Stream& stream, EngineKind engine, std::uint64_t duration_ns, std::function<void()> effect);

// Waits until everything that is on the stream is done.
CUresult Synchronize(Stream& stream);
// Waits for all streams of a context.
CUresult SynchronizeContext(Context& context);

inline bool Capturing(const Stream& stream) { return stream.capture.load(std::memory_order_acquire) != nullptr; }

// Adds a node to the graph that the stream captures, in the place of doing the work.
CUresult CaptureCopy(Stream& stream, const CUDA_MEMCPY3D& copy);
CUresult CaptureMemset(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& memset);
CUresult CaptureAlloc(Stream& stream, CUDA_MEM_ALLOC_NODE_PARAMS& alloc);  // fills in dptr
CUresult CaptureFree(Stream& stream, CUdeviceptr pointer);

// For calls that are illegal while a capture is in progress that could be disturbed by them (cuMemAlloc, cuMemFree, synchronising copies):
// STREAM_CAPTURE_UNSUPPORTED, after invalidating the captures concerned, by the thread's capture mode.
CUresult ForbiddenInCapture();

}  // namespace tessera::sim
