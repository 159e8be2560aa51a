// The engine behind streams: what is on them, when it ends, and when its effects happen.
//
// Two ways through: a stream whose earlier work has known ends takes new work at once: its times
// are drawn from the card's engines (SubmitWork, shared by all processes) and its effect on memory
// happens at submission, in order. A stream that waits for memory to change or for a host function
// holds its later work in a queue; one thread of the simulator, started when the first such work
// comes, takes it from there.
//
// What others can see before a synchronisation (host functions, memory writes of streams) happens
// at its simulated time, never before; copies, fills and kernels' host functions happen at
// submission or later, in stream order.
//
// Thread safety: all functions may be called from any thread; effects run without locks.
// Invariants:
//   1. Ends on one stream never go back.
//   2. A Moment is resolved exactly once; after that its times are fixed.
//   3. Work of one stream runs its effects in submission order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/cuda/stream.h"

namespace tessera::sim {

struct Moment {
  const Context* context = nullptr;  // of its stream; not to be followed
  bool known = false;                // this and the rest guarded by the work mutex
  std::uint64_t when_ns = 0, effects_ns = 0;
  std::function<void(std::uint64_t)> on_known;
};

// An end: at `when_ns`, or when `pending` is resolved.
struct Point {
  std::uint64_t when_ns = 0;
  std::uint64_t effects_ns = 0;
  std::shared_ptr<Moment> pending;
};

struct Work {
  EngineKind engine = EngineKind::kNone;
  std::uint64_t duration_ns = 0;
  std::function<void()> effect;
  bool at_its_time = false;     // the effect is not to be seen before its simulated time
  bool host_function = false;   // runs on the simulator's thread, takes the time that it takes
  std::function<bool()> ready;  // looked at from its turn on until it says yes
  std::vector<Point> after;
  std::uint64_t not_before_ns = 0;
  std::shared_ptr<Moment> done;  // set by Submit
};

// Puts work at the end of a stream; `done` (may be null) becomes its end. Blocks while the queue is
// full.
CUresult Submit(Stream& stream, Work work, Point* done = nullptr);

// The end of everything that is on the stream now.
Point TailOf(Stream& stream);
// Later work of the stream starts after `point` too.
void JoinPoint(Stream& stream, const Point& point);
// Ends of everything in the context.
std::vector<Point> TailsOf(Context& context);

bool IsDone(const Point& point);
void WaitFor(const Point& point);
// Calls `f` with the end, at once if it is known.
void WhenKnown(const Point& point, std::function<void(std::uint64_t)> f);

// For a context that ends: has everything that is held back on its streams done, except what waits
// for memory or for another context. That, and what follows it on its stream, is never done.
void FinishWork(Context& context);
// Waits for everything on the context's streams; false as soon as some of it waits for memory or
// for another context, which may be for ever.
bool WaitForWork(Context& context);

// Some word in memory changed that a wait may look at.
void MemoryChanged();

// The stream objects of a context, legacy stream first.
struct ContextStreams : Stream {
  std::uint64_t blocking_tail_ns = 0, blocking_effects_ns = 0;
  std::uint64_t dropped_tail_ns = 0, dropped_effects_ns = 0;  // of streams that were destroyed
  std::vector<Stream*> streams;  // created and per-thread ones, guarded by the work mutex
};
ContextStreams& StreamsOf(Context& context);
// For a context that has ended and is deleted: its stream objects, per-thread ones included.
// Threads that remember one look at the context's id, which is never used again.
void DeleteStreamsOf(Context& context);
// Work that is on the stream goes on; the object goes when it is done.
void DestroyStream(Stream& stream);

std::mutex& WorkMutex();

}  // namespace tessera::sim
