// One engine's time, shared by every process that has work on it: a fair queue that is advanced by
// whoever looks.
//
// The model: contexts with work take turns in slices; a turn of another context costs a switch.
// Work is served as a fluid (each active process gets an equal part of the engine, less the
// switches), so shares, conservation and busy time are exact; the end that a submission is told
// counts whole slices and assumes that no other process adds work later. A promise already given is
// not taken back: what another process adds later delays the next submission instead.
//
// Thread safety: none; EngineState below publishes whole Timelines by compare-and-swap.
// Units: nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::sim {

inline constexpr int kMaxActive =
    32;  // processes with work on one engine at once; the rest share the last entry
inline constexpr int kTimelineBuffers =
    24;  // submitters that may be stopped or killed in the middle without harm
inline constexpr int kUtilSamples =
    72;  // depth of the driver's own ring (GPUMON samples, open kernel modules)
inline constexpr std::uint64_t kUtilWindowNs =
    1'000'000'000 / 6;  // NVML's sample period is 1/6 s to 1 s by product

struct TimelineEntry {
  std::uint64_t owner;       // ProcessSlot::owner
  std::uint64_t process;     // slot
  std::uint64_t backlog_ns;  // work not served yet
  std::uint64_t ready_ns;    // not served before
  std::uint64_t until_ns;    // the last end that was promised
};

struct Timeline {
  std::uint64_t advanced_ns;  // everything up to here has been served
  std::uint64_t busy_ns_total;
  std::uint64_t window_busy_ns;  // in the window that holds advanced_ns
  std::uint64_t last_owner;      // who was served last
  std::uint64_t count;
  TimelineEntry entries[kMaxActive];
};

struct SliceCosts {
  std::uint64_t slice_ns, switch_ns;
};

// What advancing finds: time served to each process, and every window that ended (the newest
// kUtilSamples of them).
struct TimelineLog {
  struct Part {
    std::uint64_t owner, process, ns;
  };
  struct Window {
    std::uint64_t window, busy_ns, owner;
  };
  int part_count = 0;
  std::uint64_t window_count = 0;  // windows[i % kUtilSamples]
  Part parts[kMaxActive];
  Window windows[kUtilSamples];
};

// Serves the backlog up to `now`. `log` may be nullptr.
void Advance(Timeline& timeline, SliceCosts costs, std::uint64_t now, TimelineLog* log);

// Adds work to an advanced timeline and answers its end: not before `earliest`, in order with the
// process' other work.
std::uint64_t Submit(Timeline& timeline, SliceCosts costs, std::uint64_t owner,
                     std::uint64_t process, std::uint64_t earliest, std::uint64_t duration);

// Takes out a process' work.
void Drop(Timeline& timeline, std::uint64_t owner);

// The published timeline of one engine. A writer copies the current one, changes the copy, writes
// it to a buffer that it claimed and makes that the current one if nobody else did meanwhile.
// Killed or stopped anywhere, it leaves the engine as it was and holds one buffer, which goes back
// when its process slot is claimed again.
struct EngineState {
  std::atomic<std::uint64_t> current;                   // version << 8 | buffer
  std::atomic<std::uint64_t> next_claim;                // makes every claim unique
  std::atomic<std::uint64_t> claims[kTimelineBuffers];  // 0 free, else claim number << 16 | slot +
                                                        // 1, kPublished for slot + 1
  Timeline buffers[kTimelineBuffers];
};

// A consistent copy of the current timeline; `version` (may be nullptr) is what PublishTimeline
// compares with.
Timeline ReadTimeline(const EngineState& engine, std::uint64_t* version);

// A buffer for the process of `slot`; buffer -1 when all are taken.
struct BufferClaim {
  int buffer;
  std::uint64_t claim;
};
BufferClaim ClaimBuffer(EngineState& engine, int slot);

// Makes `timeline` the current one if `version` still is; false = read again. The claim ends when
// it succeeds.
bool PublishTimeline(EngineState& engine, BufferClaim claim, std::uint64_t version,
                     const Timeline& timeline);

// Gives back the buffers that a former process of `slot` left behind.
void ReleaseBuffersOf(EngineState& engine, int slot);

}  // namespace tessera::sim
