// When work ends: arithmetic on streams' tails and on the card's engines.
#include <algorithm>

#include "sim/cuda/device.h"
#include "sim/cuda/work_engine.h"
#include "sim/state/node_state.h"

namespace tessera::sim {

std::uint64_t QueueDepth() {
  const NodeState* node = Node();
  return node != nullptr && node->costs.launch_queue_depth > 0 ? node->costs.launch_queue_depth
                                                               : 1024;
}

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

}  // namespace tessera::sim
