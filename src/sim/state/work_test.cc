// Work of several processes on one engine, in real time; figures of time are checked against the
// model's own promises.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <vector>

#include "sim/state/node_state.h"
#include "sim/state/testing/children.h"

namespace tessera::sim {
namespace {

using testing::Join;
using testing::Start;
using testing::TestNode;

constexpr std::uint64_t kMs = 1'000'000;

TEST(Work, EndsInOrderAndNotBeforeAsked) {
  TestNode node;
  const std::uint64_t now = NowNs();
  EXPECT_GE(SubmitWork(0, 1, now + 50 * kMs, kMs), now + 51 * kMs);
  std::uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t end = SubmitWork(0, 0, 0, 10'000);
    EXPECT_GE(end, last + 10'000);
    last = end;
  }
  EXPECT_GE(last, now + 10 * kMs);
}

TEST(Work, EnginesAndCardsAreIndependent) {
  TestNode node(2);
  SubmitWork(0, 0, 0, 1000 * kMs);
  const std::uint64_t now = NowNs();
  EXPECT_LT(SubmitWork(0, 1, 0, kMs), now + 500 * kMs);
  EXPECT_LT(SubmitWork(1, 0, 0, kMs), now + 500 * kMs);
}

// Both keep a deep queue: after 300 ms of the model's time each has been given half.
TEST(Work, TwoProcessesShareTheEngineFairly) {
  TestNode node;
  const std::uint64_t stop = NowNs() + 300 * kMs;
  const auto user = [stop](std::uint64_t kernel) {
    return [stop, kernel] {
      std::uint64_t end = 0;
      while (NowNs() < stop) {
        if (end > NowNs() + 100 * kMs)
          usleep(1000);
        else
          end = SubmitWork(0, 0, 0, kernel);
      }
      sleep(30);
      return true;
    };
  };
  const pid_t a = Start(user(100'000)), b = Start(user(3 * kMs));
  usleep(350'000);
  SubmitWork(0, 0, 0, 1);  // brings the figures up to date
  std::uint64_t busy[2] = {};
  for (const ProcessSlot& slot : node->processes) {
    if (VisiblePid(slot) == a) busy[0] = slot.cards[0].busy_ns.load();
    if (VisiblePid(slot) == b) busy[1] = slot.cards[0].busy_ns.load();
  }
  testing::Kill(a);
  testing::Kill(b);
  ASSERT_GT(busy[0] + busy[1], 0u);
  const double share = static_cast<double>(busy[0]) / static_cast<double>(busy[0] + busy[1]);
  EXPECT_GT(share, 0.3);
  EXPECT_LT(share, 0.7);
}

TEST(Work, OfADeadProcessDoesNotRunOn) {
  TestNode node;
  EXPECT_TRUE(Join(Start([] {
    SubmitWork(0, 0, 0, 100'000 * kMs);
    return true;
  })));
  SweepDeadProcesses();
  const std::uint64_t now = NowNs();
  EXPECT_LT(SubmitWork(0, 0, 0, kMs), now + 10'000 * kMs);
}

TEST(Work, SamplesTellWhoWasOnTheEngine) {
  TestNode node;
  SubmitWork(0, 0, 0, 400 * kMs);
  usleep(400'000);
  TimelineLog log;
  const Timeline t = PeekTimeline(*node, 0, 0, &log);
  EXPECT_GE(t.busy_ns_total, 399 * kMs);
  ASSERT_GE(log.window_count, 2u);
  EXPECT_EQ(log.windows[1].owner, node->processes[OwnProcess()].owner.load());
  SubmitWork(0, 0, 0, 1);
  bool found = false;
  for (const UtilSample& sample : node->cards[0].samples[0]) {
    found = found || (sample.window.load() == log.windows[1].window && sample.busy_ns.load() > 0);
  }
  EXPECT_TRUE(found) << "the next submission writes them down";
}

// A process stopped anywhere in a submission must not stop the others: they are given all the time
// they need to notice.
TEST(Work, AStoppedProcessHoldsNobodyUp) {
  TestNode node;
  std::vector<pid_t> stopped;
  for (int i = 0; i < 8; ++i) {
    stopped.push_back(Start([] {
      for (;;) {
        SubmitWork(0, 0, 0, 1);
        if (ChargeCard(0, 1)) UnchargeCard(0, 1);
      }
      return true;
    }));
  }
  usleep(20'000);
  for (pid_t child : stopped) kill(child, SIGSTOP);
  for (int i = 0; i < 1000; ++i) {
    SubmitWork(0, 0, 0, 1);
    EXPECT_TRUE(ChargeCard(0, 1));
    UnchargeCard(0, 1);
  }
  for (pid_t child : stopped) testing::Kill(child);
  EXPECT_EQ(UsedBytes(0), 0u);
}

}  // namespace
}  // namespace tessera::sim
