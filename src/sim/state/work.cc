// Work on engines, and the clock that it is measured by.
#include <errno.h>
#include <time.h>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

// Work of processes that are gone does not run on.
void DropGone(const NodeState& node, Timeline& timeline) {
  for (std::uint64_t i = timeline.count; i-- > 0;) {
    const TimelineEntry& entry = timeline.entries[i];
    if (entry.owner == 0) continue;
    if (entry.process < kMaxProcesses &&
        node.processes[entry.process].owner.load(std::memory_order_acquire) == entry.owner) {
      continue;
    }
    Drop(timeline, entry.owner);
  }
}

void Record(NodeState& node, int card, int engine, const TimelineLog& log) {
  for (int i = 0; i < log.part_count; ++i) {
    const TimelineLog::Part& part = log.parts[i];
    if (part.ns == 0 || part.owner == 0 || part.process >= kMaxProcesses) continue;
    ProcessSlot& slot = node.processes[part.process];
    if (engine == 0 && slot.owner.load(std::memory_order_relaxed) == part.owner) {
      slot.cards[card].busy_ns.fetch_add(part.ns, std::memory_order_relaxed);
    }
  }
  const std::uint64_t kept = log.window_count < kUtilSamples ? log.window_count : kUtilSamples;
  for (std::uint64_t i = log.window_count - kept; i < log.window_count; ++i) {
    const TimelineLog::Window& window = log.windows[i % kUtilSamples];
    UtilSample& sample = node.cards[card].samples[engine][window.window % kUtilSamples];
    sample.window.store(0, std::memory_order_relaxed);
    sample.busy_ns.store(window.busy_ns, std::memory_order_relaxed);
    sample.owner.store(window.owner, std::memory_order_relaxed);
    sample.window.store(window.window, std::memory_order_release);
  }
}

}  // namespace

SliceCosts EngineCosts(const NodeState& node, int engine) {
  // Copies of several contexts take turns too, but a turn costs a copy engine nothing.
  return {node.costs.context_slice_ns, engine == 0 ? node.costs.context_switch_ns : 0};
}

std::uint64_t SubmitWork(int card, int engine, std::uint64_t earliest_ns,
                         std::uint64_t duration_ns) {
  NodeState* node = AttachNode();
  const int slot = OwnProcess();
  const std::uint64_t now = NowNs();
  const std::uint64_t alone = (earliest_ns > now ? earliest_ns : now) + duration_ns;
  if (node == nullptr || slot < 0 || card < 0 || card >= static_cast<int>(node->card_count) ||
      engine < 0 || engine >= kMaxEngines) {
    return alone;
  }
  EngineState& state = node->cards[card].engines[engine];
  const SliceCosts costs = EngineCosts(*node, engine);
  const std::uint64_t owner = node->processes[slot].owner.load(std::memory_order_relaxed);
  BufferClaim claim = ClaimBuffer(state, slot);
  if (claim.buffer < 0) {
    // Every buffer is held by somebody stopped or killed.
    SweepThoroughly(*node);
    for (int i = 0; i < kMaxProcesses; ++i) {
      if (node->processes[i].owner.load(std::memory_order_acquire) == 0) ReleaseBuffersOf(state, i);
    }
    claim = ClaimBuffer(state, slot);
    if (claim.buffer < 0) return alone;
  }
  for (;;) {
    std::uint64_t version = 0;
    Timeline timeline = ReadTimeline(state, &version);
    DropGone(*node, timeline);
    TimelineLog log;
    Advance(timeline, costs, now, &log);
    const std::uint64_t end =
        Submit(timeline, costs, owner, static_cast<std::uint64_t>(slot), earliest_ns, duration_ns);
    if (!PublishTimeline(state, claim, version, timeline)) continue;
    Record(*node, card, engine, log);
    return end;
  }
}

Timeline PeekTimeline(const NodeState& node, int card, int engine, TimelineLog* log) {
  Timeline timeline = ReadTimeline(node.cards[card].engines[engine], nullptr);
  DropGone(node, timeline);
  Advance(timeline, EngineCosts(node, engine), NowNs(), log);
  return timeline;
}

std::uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void SleepUntil(std::uint64_t when_ns) {
  const timespec when{static_cast<time_t>(when_ns / 1'000'000'000),
                      static_cast<long>(when_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

}  // namespace tessera::sim
