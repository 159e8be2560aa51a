// Giving work to streams, and waiting for it.
#include "sim/cuda/work.h"

#include <algorithm>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/work_engine.h"
#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

// Points that the order of default and blocking streams puts before new work.
void AddBarrier(Stream& stream, Work& work) {
  if (stream.internal) return;
  if (!stream.legacy && !Blocking(stream)) return;
  ContextStreams& all = StreamsOf(*stream.context);
  if (stream.legacy) {
    work.not_before_ns = std::max(work.not_before_ns, all.blocking_tail_ns);
    stream.effects_until_ns = std::max(stream.effects_until_ns, all.blocking_effects_ns);
    for (Stream* other : Engine().held) {
      if (other->context == stream.context && Blocking(*other))
        work.after.push_back(TailLocked(*other));
    }
  } else {
    Point legacy = TailLocked(all);
    stream.effects_until_ns = std::max(stream.effects_until_ns, legacy.effects_ns);
    if (legacy.pending != nullptr) {
      work.after.push_back(std::move(legacy));
    } else {
      work.not_before_ns = std::max(work.not_before_ns, legacy.when_ns);
    }
  }
}

// Waits for a place in the stream's queue.
void AwaitPlace(Stream& stream, WorkLock& lock) {
  const std::uint64_t depth = QueueDepth();
  while (!stream.internal) {
    const std::uint64_t held = stream.waiting.size();
    if (held >= depth) {
      Engine().changed.wait(lock);
      continue;
    }
    const std::uint64_t executed_places = depth - held;
    if (stream.ended < executed_places || stream.ends.size() != depth) return;
    const std::uint64_t free_at = stream.ends[(stream.ended - executed_places) % depth];
    if (free_at <= NowNs()) return;
    lock.unlock();
    SleepUntil(free_at);
    lock.lock();
  }
}

}  // namespace

WorkEngine& Engine() {
  static auto* engine = new WorkEngine;  // never destroyed: the runtime calls from exit handlers
  return *engine;
}

std::mutex& WorkMutex() { return Engine().mutex; }

CUresult Submit(Stream& stream, Work work, Point* done) {
  WorkEngine& engine = Engine();
  WorkLock lock(engine.mutex);
  AwaitPlace(stream, lock);
  AddBarrier(stream, work);
  const bool known = FoldAfter(stream, work);
  const std::uint64_t now = NowNs();
  if (work.effect && stream.effects_until_ns <= now) SettleEffects(stream, lock);
  const std::uint64_t start =
      std::max({stream.busy_until_ns.load(std::memory_order_relaxed), work.not_before_ns, now});

  if (known && stream.waiting.empty() && !work.host_function) {
    bool direct =
        !work.ready && (!work.effect || work.at_its_time || stream.effects_until_ns <= now);
    std::uint64_t end = 0;
    if (work.ready && start <= now && work.ready()) {
      end = start + kLookNs;
      direct = true;
      work.ready = nullptr;
    } else if (direct) {
      end = TakeEngine(stream, work, start);
    }
    if (direct) {
      const bool later = work.at_its_time && work.effect && start > now;
      if (later) {
        stream.effects_until_ns = std::max(stream.effects_until_ns, start);
        engine.timers.push({start, engine.timer_sequence++, std::move(work.effect)});
        work.effect = nullptr;
        WakeWorker();
      }
      SetTail(stream, end);
      if (done != nullptr) *done = TailLocked(stream);
      lock.unlock();
      if (work.effect) work.effect();
      return CUDA_SUCCESS;
    }
  }

  work.done = std::make_shared<Moment>();
  work.done->context = stream.context;
  stream.last = work.done;
  stream.waiting.push_back(std::make_unique<Work>(std::move(work)));
  if (stream.waiting.size() == 1) engine.held.push_back(&stream);
  if (done != nullptr) *done = TailLocked(stream);
  WakeWorker();
  return CUDA_SUCCESS;
}

Point TailOf(Stream& stream) {
  WorkLock lock(Engine().mutex);
  return TailLocked(stream);
}

void JoinPoint(Stream& stream, const Point& point) {
  {
    WorkLock lock(Engine().mutex);
    const Point folded = Folded(point);
    if (folded.pending == nullptr && stream.waiting.empty()) {
      stream.effects_until_ns = std::max(stream.effects_until_ns, folded.effects_ns);
      if (folded.when_ns > stream.busy_until_ns.load(std::memory_order_relaxed)) {
        stream.busy_until_ns.store(folded.when_ns, std::memory_order_release);
        if (Blocking(stream)) {
          ContextStreams& all = StreamsOf(*stream.context);
          all.blocking_tail_ns = std::max(all.blocking_tail_ns, folded.when_ns);
        }
      }
      return;
    }
  }
  Work join;
  join.after.push_back(point);
  Submit(stream, std::move(join));
}

std::vector<Point> TailsOf(Context& context) {
  std::vector<Point> tails;
  ContextStreams& all = StreamsOf(context);
  WorkLock lock(Engine().mutex);
  tails.push_back({all.dropped_tail_ns, all.dropped_effects_ns, nullptr});
  tails.push_back(TailLocked(all));
  for (Stream* stream : all.streams) tails.push_back(TailLocked(*stream));
  return tails;
}

bool IsDone(const Point& point) {
  WorkLock lock(Engine().mutex);
  const Point folded = Folded(point);
  if (folded.pending != nullptr || folded.when_ns > NowNs()) return false;
  if (folded.effects_ns != 0) RunDueTimers(lock);
  return Engine().timers_running == 0 || folded.effects_ns == 0;
}

void WaitFor(const Point& point) {
  WorkEngine& engine = Engine();
  WorkLock lock(engine.mutex);
  Point folded = Folded(point);
  while (folded.pending != nullptr) {
    engine.changed.wait(lock);
    folded = Folded(point);
  }
  while (folded.when_ns > NowNs()) {
    lock.unlock();
    SleepUntil(folded.when_ns);
    lock.lock();
  }
  if (folded.effects_ns == 0) return;
  RunDueTimers(lock);
  while (engine.timers_running > 0) engine.changed.wait(lock);
}

void WhenKnown(const Point& point, std::function<void(std::uint64_t)> f) {
  WorkLock lock(Engine().mutex);
  const Point folded = Folded(point);
  if (folded.pending == nullptr) return f(folded.when_ns);
  auto& slot = folded.pending->on_known;
  slot = slot ? [first = std::move(slot), second = std::move(f)](std::uint64_t when_ns) {
    first(when_ns);
    second(when_ns);
  } : std::move(f);
}

void DestroyStream(Stream& stream) {
  WorkLock lock(Engine().mutex);
  stream.dropped = true;
  if (stream.waiting.empty()) DropStream(stream);
}

void DropStream(Stream& stream) {
  ContextStreams& all = StreamsOf(*stream.context);
  all.dropped_tail_ns = std::max(all.dropped_tail_ns, stream.busy_until_ns.load());
  all.dropped_effects_ns = std::max(all.dropped_effects_ns, stream.effects_until_ns);
  std::erase(all.streams, &stream);
  delete &stream;
}

ContextStreams& StreamsOf(Context& context) {
  Stream* known = context.legacy_stream.load(std::memory_order_acquire);
  if (known == nullptr) {
    auto* made = new ContextStreams;
    made->context = &context;
    made->legacy = true;
    made->id = 1;
    if (context.legacy_stream.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
      known = made;
    } else {
      delete made;
    }
  }
  return *static_cast<ContextStreams*>(known);
}

void DeleteStreamsOf(Context& context) {
  auto* all = static_cast<ContextStreams*>(context.legacy_stream.exchange(nullptr));
  if (all == nullptr) return;
  for (Stream* stream : all->streams) delete stream;
  delete all;
}

CUresult Enqueue(Stream& stream, EngineKind engine, std::uint64_t duration_ns,
                 std::function<void()> effect) {
  if (const CUresult refused = RefuseLegacyCapture(stream); refused != CUDA_SUCCESS) return refused;
  Work work;
  work.engine = engine;
  work.duration_ns = duration_ns;
  work.effect = std::move(effect);
  return Submit(stream, std::move(work));
}

CUresult Synchronize(Stream& stream) {
  WaitFor(TailOf(stream));
  TrimPoolsAtSynchronize(stream.context->card);
  return Usable(*stream.context);
}

CUresult SynchronizeContext(Context& context) {
  for (const Point& tail : TailsOf(context)) WaitFor(tail);
  TrimPoolsAtSynchronize(context.card);
  return Usable(context);
}

}  // namespace tessera::sim
