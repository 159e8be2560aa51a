#include "sim/cuda/work.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <queue>

#include "sim/cuda/capture.h"
#include "sim/cuda/device.h"
#include "sim/cuda/pool.h"
#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

// Look of a stream's wait at its word, and cost of a write: 1-2 us on cards (figures of stream
// memory operations).
constexpr std::uint64_t kLookNs = 1'000;
// How often the simulator's thread looks at words that another process or the host may change;
// grows to the last.
constexpr std::uint64_t kFirstPollNs = 2'000, kLastPollNs = 200'000;

struct Timer {
  std::uint64_t when_ns;
  std::uint64_t sequence;
  std::function<void()> effect;
  bool operator<(const Timer& other) const {
    return when_ns != other.when_ns ? when_ns > other.when_ns : sequence > other.sequence;
  }
};

struct Engine_ {
  std::mutex mutex;
  std::condition_variable changed;  // something ended, resolved or was taken from a queue
  std::condition_variable worker;   // something for the simulator's thread
  bool worker_started = false;
  bool worker_wanted = false;         // work since the thread last looked
  std::vector<Stream*> held;          // streams with waiting work
  std::priority_queue<Timer> timers;  // effects at their time
  std::uint64_t timer_sequence = 0;
  int timers_running = 0;
};

Engine_& E() {
  static auto* engine = new Engine_;  // never destroyed: the runtime calls from exit handlers
  return *engine;
}

using Lock = std::unique_lock<std::mutex>;

std::uint64_t QueueDepth() {
  const NodeState* node = Node();
  return node != nullptr && node->costs.launch_queue_depth > 0 ? node->costs.launch_queue_depth
                                                               : 1024;
}

void WorkerLoop();
void* WorkerMain(void*) {
  WorkerLoop();
  return nullptr;
}

void WakeWorker(Engine_& engine) {
  engine.worker_wanted = true;
  if (!engine.worker_started) {
    // Signals belong to the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    engine.worker_started = pthread_create(&thread, &attributes, &WorkerMain, nullptr) == 0;
    if (engine.worker_started) pthread_setname_np(thread, "tessera-sim");
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  engine.worker.notify_one();
}

// Runs effects whose time has come. The lock is given up while one runs.
void RunDueTimers(Lock& lock) {
  Engine_& engine = E();
  while (!engine.timers.empty() && engine.timers.top().when_ns <= NowNs()) {
    auto effect = std::move(const_cast<Timer&>(engine.timers.top()).effect);
    engine.timers.pop();
    ++engine.timers_running;
    lock.unlock();
    effect();
    lock.lock();
    --engine.timers_running;
    engine.worker_wanted = true;
    engine.worker.notify_one();
    engine.changed.notify_all();
  }
}

void Resolve(Moment& moment, std::uint64_t when_ns, std::uint64_t effects_ns) {
  moment.known = true;
  moment.when_ns = when_ns;
  moment.effects_ns = effects_ns;
  if (moment.on_known) moment.on_known(when_ns);
  moment.on_known = nullptr;
}

// Point whose pending moment, if already resolved, is folded into its times.
Point Folded(const Point& point) {
  if (point.pending == nullptr || !point.pending->known) return point;
  return {std::max(point.when_ns, point.pending->when_ns),
          std::max(point.effects_ns, point.pending->effects_ns), nullptr};
}

Point TailLocked(Stream& stream) {
  Point tail{stream.busy_until_ns.load(std::memory_order_relaxed), stream.effects_until_ns,
             nullptr};
  if (!stream.waiting.empty()) tail.pending = stream.last;
  return tail;
}

bool Blocking(const Stream& stream) {
  return !stream.internal && !stream.legacy && (stream.flags & CU_STREAM_NON_BLOCKING) == 0;
}

void SetTail(Stream& stream, std::uint64_t end_ns) {
  if (end_ns > stream.busy_until_ns.load(std::memory_order_relaxed)) {
    stream.busy_until_ns.store(end_ns, std::memory_order_release);
  }
  if (stream.internal) return;
  if (Blocking(stream)) {
    ContextStreams& all = StreamsOf(*stream.context);
    all.blocking_tail_ns = std::max(all.blocking_tail_ns, end_ns);
    all.blocking_effects_ns = std::max(all.blocking_effects_ns, stream.effects_until_ns);
  }
  const std::uint64_t depth = QueueDepth();
  if (stream.ends.size() != depth) stream.ends.assign(depth, 0);
  stream.ends[stream.ended++ % depth] = end_ns;
}

// Points that the order of default and blocking streams puts before new work.
void AddBarrier(Stream& stream, Work& work) {
  if (stream.internal) return;
  if (!stream.legacy && !Blocking(stream)) return;
  ContextStreams& all = StreamsOf(*stream.context);
  if (stream.legacy) {
    work.not_before_ns = std::max(work.not_before_ns, all.blocking_tail_ns);
    stream.effects_until_ns = std::max(stream.effects_until_ns, all.blocking_effects_ns);
    for (Stream* other : E().held) {
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

// Folds what is known; true when nothing pending is left.
bool FoldAfter(Stream& stream, Work& work) {
  auto rest = work.after.begin();
  for (Point& point : work.after) {
    Point folded = Folded(point);
    work.not_before_ns = std::max(work.not_before_ns, folded.when_ns);
    stream.effects_until_ns = std::max(stream.effects_until_ns, folded.effects_ns);
    if (folded.pending != nullptr) *rest++ = std::move(folded);
  }
  work.after.erase(rest, work.after.end());
  return work.after.empty();
}

std::uint64_t TakeEngine(const Stream& stream, const Work& work, std::uint64_t start_ns) {
  if (work.engine == EngineKind::kNone || work.duration_ns == 0) return start_ns + work.duration_ns;
  return SubmitWork(stream.context->card, static_cast<int>(work.engine), start_ns,
                    work.duration_ns);
}

// Looks at the first of the stream's waiting works. True when it was ended; else `wake_ns` may be
// lowered.
bool RunFirst(Stream& stream, Lock& lock, std::uint64_t poll_ns, std::uint64_t& wake_ns) {
  if (stream.running) return false;
  Work& work = *stream.waiting.front();
  if (!FoldAfter(stream, work)) return false;
  const std::uint64_t now = NowNs();
  const std::uint64_t start =
      std::max({stream.busy_until_ns.load(std::memory_order_relaxed), work.not_before_ns});
  std::uint64_t end = start;
  if (work.ready || work.at_its_time || work.host_function) {
    if (now < start) {
      wake_ns = std::min(wake_ns, start);
      return false;
    }
    if (work.ready && !work.ready()) {
      wake_ns = std::min(wake_ns, now + poll_ns);
      return false;
    }
    if (work.ready) end = NowNs() + kLookNs;
  } else if (work.effect && stream.effects_until_ns > now) {
    wake_ns = std::min(wake_ns, stream.effects_until_ns);
    return false;
  }
  if (!work.ready && !work.host_function) end = TakeEngine(stream, work, std::max(start, now));
  if (work.effect) {
    stream.running = true;
    lock.unlock();
    work.effect();
    lock.lock();
    stream.running = false;
    if (work.host_function) end = NowNs();
  }
  SetTail(stream, end);
  Resolve(*work.done, stream.busy_until_ns.load(std::memory_order_relaxed),
          stream.effects_until_ns);
  stream.waiting.pop_front();
  if (stream.waiting.empty()) {
    stream.last = nullptr;
    std::erase(E().held, &stream);
  }
  E().changed.notify_all();
  return true;
}

void WorkerLoop() {
  Engine_& engine = E();
  Lock lock(engine.mutex);
  std::uint64_t poll_ns = kFirstPollNs;
  for (;;) {  // the thread lives as long as the process
    engine.worker_wanted = false;
    RunDueTimers(lock);
    std::uint64_t wake_ns = UINT64_MAX;
    bool progress = false;
    const std::vector<Stream*> held = engine.held;
    for (Stream* stream : held) {
      while (std::find(engine.held.begin(), engine.held.end(), stream) != engine.held.end() &&
             RunFirst(*stream, lock, poll_ns, wake_ns)) {
        progress = true;
      }
    }
    if (!engine.timers.empty()) wake_ns = std::min(wake_ns, engine.timers.top().when_ns);
    if (progress) {
      poll_ns = kFirstPollNs;
      continue;
    }
    if (engine.worker_wanted) continue;
    if (wake_ns == UINT64_MAX) {
      engine.worker.wait(lock);
      poll_ns = kFirstPollNs;
    } else {
      const std::uint64_t now = NowNs();
      if (wake_ns > now) engine.worker.wait_for(lock, std::chrono::nanoseconds(wake_ns - now));
      poll_ns = std::min(poll_ns + poll_ns / 4, kLastPollNs);
    }
  }
}

// Waits for a place in the stream's queue.
void AwaitPlace(Stream& stream, Lock& lock) {
  const std::uint64_t depth = QueueDepth();
  while (!stream.internal) {
    const std::uint64_t held = stream.waiting.size();
    if (held >= depth) {
      E().changed.wait(lock);
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

std::mutex& WorkMutex() { return E().mutex; }

CUresult Submit(Stream& stream, Work work, Point* done) {
  Engine_& engine = E();
  Lock lock(engine.mutex);
  AwaitPlace(stream, lock);
  AddBarrier(stream, work);
  const bool known = FoldAfter(stream, work);
  const std::uint64_t now = NowNs();
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
        WakeWorker(engine);
      }
      SetTail(stream, end);
      if (done != nullptr) *done = TailLocked(stream);
      lock.unlock();
      if (work.effect) work.effect();
      return CUDA_SUCCESS;
    }
  }

  work.done = std::make_shared<Moment>();
  stream.last = work.done;
  stream.waiting.push_back(std::make_unique<Work>(std::move(work)));
  if (stream.waiting.size() == 1) engine.held.push_back(&stream);
  if (done != nullptr) *done = TailLocked(stream);
  WakeWorker(engine);
  return CUDA_SUCCESS;
}

Point TailOf(Stream& stream) {
  Lock lock(E().mutex);
  return TailLocked(stream);
}

void JoinPoint(Stream& stream, const Point& point) {
  {
    Lock lock(E().mutex);
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
  Lock lock(E().mutex);
  tails.push_back(TailLocked(all));
  for (Stream* stream : all.streams) tails.push_back(TailLocked(*stream));
  return tails;
}

bool IsDone(const Point& point) {
  Lock lock(E().mutex);
  const Point folded = Folded(point);
  if (folded.pending != nullptr || folded.when_ns > NowNs()) return false;
  if (folded.effects_ns != 0) RunDueTimers(lock);
  return E().timers_running == 0 || folded.effects_ns == 0;
}

void WaitFor(const Point& point) {
  Engine_& engine = E();
  Lock lock(engine.mutex);
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
  Lock lock(E().mutex);
  const Point folded = Folded(point);
  if (folded.pending == nullptr) return f(folded.when_ns);
  auto& slot = folded.pending->on_known;
  slot = slot ? [first = std::move(slot), second = std::move(f)](std::uint64_t when_ns) {
    first(when_ns);
    second(when_ns);
  } : std::move(f);
}

void MemoryChanged() {
  Lock lock(E().mutex);
  if (E().held.empty()) return;
  E().worker_wanted = true;
  E().worker.notify_one();
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
