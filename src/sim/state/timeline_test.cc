#include "sim/state/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr SliceCosts kCosts{1'024'000, 32'000};
constexpr std::uint64_t kStart = 1'000'000 * kMs;

Timeline Fresh() {
  Timeline t{};
  Advance(t, kCosts, kStart, nullptr);
  return t;
}

std::uint64_t Served(const TimelineLog& log, std::uint64_t owner) {
  for (int i = 0; i < log.part_count; ++i) {
    if (log.parts[i].owner == owner) return log.parts[i].ns;
  }
  return 0;
}

TEST(Timeline, OneProcessRunsBackToBack) {
  Timeline t = Fresh();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(Submit(t, kCosts, 7, 0, 0, kMs), kStart + i * kMs);
  Advance(t, kCosts, kStart + 40 * kMs, nullptr);
  EXPECT_EQ(t.busy_ns_total, 40 * kMs);
  Advance(t, kCosts, kStart + 400 * kMs, nullptr);
  EXPECT_EQ(t.busy_ns_total, 100 * kMs);
  EXPECT_EQ(t.count, 0u);
}

TEST(Timeline, WorkWaitsForItsEarliestStart) {
  Timeline t = Fresh();
  EXPECT_EQ(Submit(t, kCosts, 7, 0, kStart + 10 * kMs, kMs), kStart + 11 * kMs);
  Advance(t, kCosts, kStart + 10 * kMs, nullptr);
  EXPECT_EQ(t.busy_ns_total, 0u);
  Advance(t, kCosts, kStart + 20 * kMs, nullptr);
  EXPECT_EQ(t.busy_ns_total, kMs);
}

TEST(Timeline, LateComerDoesNotWaitForTheWholeQueue) {
  Timeline t = Fresh();
  Submit(t, kCosts, 1, 0, 0, 1000 * kMs);
  const std::uint64_t end = Submit(t, kCosts, 2, 1, 0, kMs);
  EXPECT_GT(end, kStart + kMs);
  EXPECT_LT(end, kStart + 4 * kMs);
}

TEST(Timeline, TwoSaturatingProcessesGetHalfEach) {
  Timeline t = Fresh();
  Submit(t, kCosts, 1, 0, 0, 1000 * kMs);
  Submit(t, kCosts, 2, 1, 0, 1000 * kMs);
  TimelineLog log;
  Advance(t, kCosts, kStart + 500 * kMs, &log);
  EXPECT_NEAR(Served(log, 1), Served(log, 2), 1000);
  // Turns cost 32 us per 1,024 us.
  EXPECT_NEAR(Served(log, 1) + Served(log, 2), 500e6 * 1024 / 1056, 1e5);
  EXPECT_EQ(t.busy_ns_total, 500 * kMs);
}

// Two processes queue 500 kernels of 100 us each, in turn. In the model's time both are told that
// their last kernel ends when all of it has been served, turns included, and not a slice later.
TEST(Timeline, TwoBurstsEndWhenBothAreServed) {
  Timeline t = Fresh();
  std::uint64_t end[2] = {};
  for (int i = 0; i < 500; ++i)
    for (int who : {0, 1}) end[who] = Submit(t, kCosts, 1 + who, who, 0, 100'000);
  const std::uint64_t work = 100 * kMs, turns = work / kCosts.slice_ns + 2;
  const std::uint64_t last = std::max(end[0], end[1]);
  EXPECT_GE(last, kStart + work);
  EXPECT_LE(last, kStart + work + turns * kCosts.switch_ns + kCosts.slice_ns);
  // Neither is kept back for the other: the first to end had half of the engine all the time.
  EXPECT_GE(std::min(end[0], end[1]), kStart + work - 3 * kCosts.slice_ns);
  Advance(t, kCosts, last, nullptr);
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < t.count; ++i) left += t.entries[i].backlog_ns;
  EXPECT_LE(left, kCosts.slice_ns) << "what was promised has been served";
}

// With any number of processes, whatever they submit: nobody waits longer than its own work plus as
// many slices of each other one as its work has, and the turns.
TEST(Timeline, NobodyWaitsForMoreThanTheOthersTurns) {
  Timeline t = Fresh();
  std::uint64_t now = kStart, backlog[5] = {};
  for (int i = 0; i < 4'000; ++i) {
    now += (i * 7919) % 90'000;
    TimelineLog log;
    Advance(t, kCosts, now, &log);
    for (int who = 0; who < 5; ++who) backlog[who] -= std::min(backlog[who], Served(log, 10 + who));
    const int who = (i * 31) % 5;
    const std::uint64_t kernel = 10'000 + static_cast<std::uint64_t>(i % 7) * 40'000;
    const std::uint64_t end = Submit(t, kCosts, 10 + who, who, 0, kernel);
    backlog[who] += kernel + kCosts.switch_ns;
    const std::uint64_t slices = backlog[who] / kCosts.slice_ns + 1;
    EXPECT_LE(end,
              now + backlog[who] + 4 * slices * kCosts.slice_ns + 6 * slices * kCosts.switch_ns)
        << i;
  }
}

TEST(Timeline, TheSameSubmissionsGetTheSameEnds) {
  const auto run = [] {
    Timeline t = Fresh();
    std::uint64_t now = kStart, sum = 0;
    for (int i = 0; i < 2'000; ++i) {
      now += (i * 7919) % 60'000;
      Advance(t, kCosts, now, nullptr);
      sum = sum * 31 + Submit(t, kCosts, 1 + i % 3, i % 3, 0, 20'000 + i);
    }
    return sum;
  };
  EXPECT_EQ(run(), run());
}

// Kernels of 10 ms against kernels of 1 ms, each process with one in flight: time slices make it
// half and half.
TEST(Timeline, LongKernelsDoNotWinAgainstShortOnes) {
  Timeline t = Fresh();
  std::uint64_t now = kStart, served[3] = {}, due[3] = {0, kStart, kStart};
  while (now < kStart + 4000 * kMs) {
    const int who = due[1] <= due[2] ? 1 : 2;
    now = due[who];
    TimelineLog log;
    Advance(t, kCosts, now, &log);
    for (int i : {1, 2}) served[i] += Served(log, i);
    due[who] = Submit(t, kCosts, who, who, 0, who == 1 ? 10 * kMs : kMs);
  }
  const double share = static_cast<double>(served[1]) / (served[1] + served[2]);
  EXPECT_GT(share, 0.42);
  EXPECT_LT(share, 0.66);
}

TEST(Timeline, BusyTimeNeverExceedsTheClock) {
  Timeline t = Fresh();
  std::uint64_t now = kStart;
  for (int i = 0; i < 20'000; ++i) {
    now += 777;
    Advance(t, kCosts, now, nullptr);
    Submit(t, kCosts, 1 + i % 5, i % 5, 0, 50'000);
  }
  EXPECT_LE(t.busy_ns_total, now - kStart);
  EXPECT_GT(t.busy_ns_total, (now - kStart) * 99 / 100);
}

TEST(Timeline, PromisesOfAProcessComeInOrder) {
  Timeline t = Fresh();
  std::uint64_t now = kStart, last[4] = {};
  for (int i = 0; i < 5'000; ++i) {
    now += (i * 7919) % 60'000;
    Advance(t, kCosts, now, nullptr);
    const int who = (i * 31) % 4;
    if (i % 100 == 99) Drop(t, who);
    const std::uint64_t end =
        Submit(t, kCosts, 10 + who, who, i % 3 == 0 ? now + 100'000 : 0, 20'000 + i);
    EXPECT_GE(end, last[who] + 20'000 + i);
    EXPECT_GE(end, now + 20'000 + i);
    last[who] = end;
  }
}

TEST(Timeline, WindowsSayHowBusyAndWho) {
  Timeline t{};
  Advance(t, kCosts, 100 * kUtilWindowNs, nullptr);
  Submit(t, kCosts, 5, 0, 0, kUtilWindowNs + kUtilWindowNs / 4);
  TimelineLog log;
  Advance(t, kCosts, 103 * kUtilWindowNs, &log);
  ASSERT_EQ(log.window_count, 3u);
  EXPECT_EQ(log.windows[0].window, 100u);
  EXPECT_EQ(log.windows[0].busy_ns, kUtilWindowNs);
  EXPECT_EQ(log.windows[0].owner, 5u);
  EXPECT_EQ(log.windows[1].busy_ns, kUtilWindowNs / 4);
  EXPECT_EQ(log.windows[1].owner, 5u);
  EXPECT_EQ(log.windows[2].busy_ns, 0u);
  EXPECT_EQ(log.windows[2].owner, 0u);
}

TEST(Timeline, LongIdleTimeIsSkipped) {
  Timeline t{};
  TimelineLog log;
  Advance(t, kCosts, 1'000'000'000 * kMs, &log);
  EXPECT_LE(log.window_count, static_cast<std::uint64_t>(kUtilSamples) + 1);
}

TEST(Timeline, MoreProcessesThanPlacesStillRun) {
  Timeline t = Fresh();
  for (int i = 0; i < 3 * kMaxActive; ++i)
    EXPECT_GE(Submit(t, kCosts, 100 + i, i, 0, kMs), kStart + kMs);
  EXPECT_EQ(t.count, static_cast<std::uint64_t>(kMaxActive));
  Advance(t, kCosts, kStart + 1000 * kMs, nullptr);
  EXPECT_EQ(t.count, 0u);
}

TEST(TimelineStore, ADeadHolderCostsOneBufferUntilItsSlotIsClaimedAgain) {
  auto engine = std::make_unique<EngineState>();
  for (int i = 0; i < kTimelineBuffers - 1; ++i) EXPECT_GE(ClaimBuffer(*engine, 3).buffer, 1);
  EXPECT_EQ(ClaimBuffer(*engine, 4).buffer, -1);
  ReleaseBuffersOf(*engine, 3);
  const BufferClaim claim = ClaimBuffer(*engine, 4);
  ASSERT_GE(claim.buffer, 0);
  std::uint64_t version = 0;
  Timeline t = ReadTimeline(*engine, &version);
  t.busy_ns_total = 42;
  EXPECT_TRUE(PublishTimeline(*engine, claim, version, t));
  EXPECT_FALSE(PublishTimeline(*engine, claim, version, t)) << "a stale version must not win";
  EXPECT_EQ(ReadTimeline(*engine, nullptr).busy_ns_total, 42u);
}

}  // namespace
}  // namespace tessera::sim
