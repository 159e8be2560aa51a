// What the two sides of the engine behind streams share: work.cc takes work and waits for it,
// work_held.cc carries out what is held back, work_times.cc says when things end.
//
// Thread safety: everything here needs the engine's mutex, except Engine().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <vector>

#include "sim/cuda/work.h"

namespace tessera::sim {

// Look of a stream's wait at its word, and cost of a write: 1-2 us on cards (figures of stream
// memory operations).
inline constexpr std::uint64_t kLookNs = 1'000;

// An effect that nobody may see before its time.
struct Timer {
  std::uint64_t when_ns;
  std::uint64_t sequence;
  std::function<void()> effect;
  bool operator<(const Timer& other) const {
    return when_ns != other.when_ns ? when_ns > other.when_ns : sequence > other.sequence;
  }
};

struct WorkEngine {
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

using WorkLock = std::unique_lock<std::mutex>;

WorkEngine& Engine();

// Places in a stream's queue.
std::uint64_t QueueDepth();

// A point whose pending moment, if already resolved, is folded into its times.
Point Folded(const Point& point);
Point TailLocked(Stream& stream);
// Waits for the context's legacy stream, and that for it.
bool Blocking(const Stream& stream);
// The stream's new end.
void SetTail(Stream& stream, std::uint64_t end_ns);
// Folds what is known of the points that the work comes after; true when nothing pending is left.
bool FoldAfter(Stream& stream, Work& work);
// The end of work that may start at `start_ns`, from the card's engines.
std::uint64_t TakeEngine(const Stream& stream, const Work& work, std::uint64_t start_ns);

// Runs effects whose time has come. The lock is given up while one runs.
void RunDueTimers(WorkLock& lock);
// Effects of the stream whose time has come have happened when this returns: the clock may be there
// before the thread that runs them. The lock is given up meanwhile.
void SettleEffects(const Stream& stream, WorkLock& lock);
// Has the simulator's thread look at the streams that are held; starts it when there is none.
void WakeWorker();
// Takes a stream that was destroyed, and has nothing held back, off its context and deletes it.
void DropStream(Stream& stream);

}  // namespace tessera::sim
