// The published timeline of an engine: see EngineState.
#include <sched.h>

#include "sim/state/timeline.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kSlotMask = 0xffff;
constexpr std::uint64_t kPublished = 0xffff;
constexpr int kClaimTries = 2000;

constexpr std::uint64_t kHeaderWords = offsetof(Timeline, entries) / sizeof(std::uint64_t);
constexpr std::uint64_t kEntryWords = sizeof(TimelineEntry) / sizeof(std::uint64_t);
static_assert(sizeof(Timeline) ==
              (kHeaderWords + kMaxActive * kEntryWords) * sizeof(std::uint64_t));

// Word by word and atomic: a reader may look at a buffer that is being written, and finds out
// afterwards.
void CopyWords(std::uint64_t* to, const std::uint64_t* from, std::uint64_t words) {
  for (std::uint64_t i = 0; i < words; ++i) {
    // Acquire: what is looked at after the copy is looked at after the copy (ThreadSanitizer knows
    // no fences).
    __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);
  }
}

std::uint64_t* Words(Timeline& timeline) { return reinterpret_cast<std::uint64_t*>(&timeline); }
const std::uint64_t* Words(const Timeline& timeline) {
  return reinterpret_cast<const std::uint64_t*>(&timeline);
}

int BufferOf(std::uint64_t version) {
  return static_cast<int>((version & 0xff) % kTimelineBuffers);
}

}  // namespace

Timeline ReadTimeline(const EngineState& engine, std::uint64_t* version) {
  Timeline copy;
  for (;;) {
    const std::uint64_t seen = engine.current.load(std::memory_order_acquire);
    const Timeline& from = engine.buffers[BufferOf(seen)];
    CopyWords(Words(copy), Words(from), kHeaderWords);
    if (copy.count > kMaxActive) copy.count = kMaxActive;
    CopyWords(Words(copy) + kHeaderWords, Words(from) + kHeaderWords, copy.count * kEntryWords);
    if (engine.current.load(std::memory_order_relaxed) == seen) {
      if (version != nullptr) *version = seen;
      return copy;
    }
  }
}

BufferClaim ClaimBuffer(EngineState& engine, int slot) {
  const std::uint64_t number = engine.next_claim.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::uint64_t claim = number << 16 | static_cast<std::uint64_t>(slot + 1);
  for (int attempt = 0; attempt < kClaimTries; ++attempt) {
    for (int i = 0; i < kTimelineBuffers; ++i) {
      std::uint64_t held = engine.claims[i].load(std::memory_order_acquire);
      const bool spent = held == 0 || (held & kSlotMask) == kPublished;
      // A spent buffer that is not the current one never becomes it again, so the order of the two
      // looks is safe.
      if (!spent || BufferOf(engine.current.load(std::memory_order_acquire)) == i) continue;
      if (engine.claims[i].compare_exchange_strong(held, claim, std::memory_order_acq_rel))
        return {i, claim};
    }
    sched_yield();
  }
  return {-1, 0};
}

bool PublishTimeline(EngineState& engine, BufferClaim claim, std::uint64_t version,
                     const Timeline& timeline) {
  Timeline& to = engine.buffers[claim.buffer];
  CopyWords(Words(to), Words(timeline), kHeaderWords + timeline.count * kEntryWords);
  const std::uint64_t next = ((version >> 8) + 1) << 8 | static_cast<std::uint64_t>(claim.buffer);
  if (!engine.current.compare_exchange_strong(version, next, std::memory_order_acq_rel))
    return false;
  // Somebody may have replaced it and taken the buffer already: then the claim is no longer ours to
  // mark.
  std::uint64_t mine = claim.claim;
  engine.claims[claim.buffer].compare_exchange_strong(mine, claim.claim | kPublished,
                                                      std::memory_order_acq_rel);
  return true;
}

void ReleaseBuffersOf(EngineState& engine, int slot) {
  for (int i = 0; i < kTimelineBuffers; ++i) {
    std::uint64_t held = engine.claims[i].load(std::memory_order_acquire);
    if ((held & kSlotMask) != static_cast<std::uint64_t>(slot + 1)) continue;
    // Its owner is dead, so whether it is the current one is settled.
    engine.claims[i].compare_exchange_strong(held, held | kPublished, std::memory_order_acq_rel);
  }
}

}  // namespace tessera::sim
