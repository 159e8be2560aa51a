// Work that is held back: the simulator's thread, which carries it out in its turn, and what
// becomes of it when its context ends.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "sim/cuda/work_engine.h"

namespace tessera::sim {
namespace {

// How often the simulator's thread looks at words that another process or the host may change;
// grows to the last.
constexpr std::uint64_t kFirstPollNs = 2'000, kLastPollNs = 200'000;

void Resolve(Moment& moment, std::uint64_t when_ns, std::uint64_t effects_ns) {
  moment.known = true;
  moment.when_ns = when_ns;
  moment.effects_ns = effects_ns;
  if (moment.on_known) moment.on_known(when_ns);
  moment.on_known = nullptr;
}

void Release(Stream& stream) {
  stream.last = nullptr;
  std::erase(Engine().held, &stream);
  if (stream.dropped) DropStream(stream);
}

// The stream's held work is never done; whoever waits for its end goes on.
void Abandon(Stream& stream) {
  for (const auto& work : stream.waiting) Resolve(*work->done, NowNs(), stream.effects_until_ns);
  stream.waiting.clear();
  Release(stream);
  Engine().changed.notify_all();
}

// Work of a context that ends waits for nothing that may never come: memory, other contexts.
bool MayNeverEnd(const Stream& stream, const Work& work) {
  if (work.after.empty()) return work.ready != nullptr && !work.ready();
  return std::any_of(work.after.begin(), work.after.end(),
                     [&](const Point& point) { return point.pending->context != stream.context; });
}

bool HeldIn(const Context& context) {
  return std::any_of(Engine().held.begin(), Engine().held.end(),
                     [&](const Stream* stream) { return stream->context == &context; });
}

// Looks at the first of the stream's waiting works. True when it was ended; else `wake_ns` may be
// lowered.
bool RunFirst(Stream& stream, WorkLock& lock, std::uint64_t poll_ns, std::uint64_t& wake_ns) {
  if (stream.running) return false;
  Work& work = *stream.waiting.front();
  const bool folded = FoldAfter(stream, work);
  if (stream.context->ending.load() && MayNeverEnd(stream, work)) {
    Abandon(stream);
    return true;
  }
  if (!folded) return false;
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
    SettleEffects(stream, lock);
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
  if (stream.waiting.empty()) Release(stream);
  Engine().changed.notify_all();
  return true;
}

void WorkerLoop() {
  WorkEngine& engine = Engine();
  WorkLock lock(engine.mutex);
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

void* WorkerMain(void*) {
  WorkerLoop();
  return nullptr;
}

}  // namespace

void WakeWorker() {
  WorkEngine& engine = Engine();
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

void RunDueTimers(WorkLock& lock) {
  WorkEngine& engine = Engine();
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

void FinishWork(Context& context) {
  WorkLock lock(Engine().mutex);
  context.ending.store(true);
  while (HeldIn(context)) {
    WakeWorker();
    Engine().changed.wait(lock);
  }
}

void SettleEffects(const Stream& stream, WorkLock& lock) {
  if (stream.effects_until_ns == 0) return;
  RunDueTimers(lock);
  while (Engine().timers_running > 0) Engine().changed.wait(lock);
}

bool WaitForWork(Context& context) {
  {
    WorkLock lock(Engine().mutex);
    while (HeldIn(context)) {
      for (Stream* stream : Engine().held) {
        if (stream->context != &context || stream->running) continue;
        Work& first = *stream->waiting.front();
        FoldAfter(*stream, first);
        if (MayNeverEnd(*stream, first)) return false;
      }
      Engine().changed.wait(lock);
    }
  }
  for (const Point& tail : TailsOf(context)) WaitFor(tail);
  return true;
}

void MemoryChanged() {
  WorkLock lock(Engine().mutex);
  if (Engine().held.empty()) return;
  Engine().worker_wanted = true;
  Engine().worker.notify_one();
}

}  // namespace tessera::sim
