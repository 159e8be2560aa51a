// Each key once, none twice at a time, failures after a back-off, and an end that loses nothing.
#include "kube/control/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "kube/testing/fake_timer.h"

namespace tessera::kube {
namespace {

class WorkQueueTest : public ::testing::Test {
 protected:
  std::string Take(int times = 1) {
    std::string taken;
    for (int i = 0; i < times; ++i) taken += queue_.TryTake().value_or("(none)");
    return taken;
  }

  testing::FakeTimer timer_;
  WorkQueue queue_{timer_, {.backoff = {.first_ns = 100, .most_ns = 1000}}, Jitter(1)};
};

TEST_F(WorkQueueTest, EachKeyWaitsOnceInOrder) {
  for (const char* key : {"a", "b", "a", "c", "b"}) queue_.Add(key);
  EXPECT_EQ(queue_.waiting(), 3u);
  EXPECT_EQ(Take(4), "abc(none)");
}

TEST_F(WorkQueueTest, AKeyThatIsWorkedOnWaitsForItsEnd) {
  queue_.Add("a");
  EXPECT_EQ(Take(), "a");
  queue_.Add("a");
  queue_.Add("a");
  EXPECT_EQ(Take(), "(none)");
  queue_.Done("a");
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  EXPECT_EQ(Take(), "(none)");
}

TEST_F(WorkQueueTest, DelaysEndInTheirOrder) {
  queue_.AddAfter("late", 200);
  queue_.AddAfter("soon", 100);
  queue_.AddAfter("now", 0);
  EXPECT_EQ(Take(2), "now(none)");
  EXPECT_EQ(queue_.NextDueNs(), timer_.NowNs() + 100);
  timer_.Advance(200);
  EXPECT_EQ(Take(3), "soonlate(none)");
  EXPECT_EQ(queue_.NextDueNs(), std::nullopt);
}

TEST_F(WorkQueueTest, TheEarlierOfTwoDelaysStands) {
  queue_.AddAfter("a", 100);
  queue_.AddAfter("a", 300);
  queue_.AddAfter("b", 300);
  queue_.AddAfter("b", 100);
  timer_.Advance(100);
  EXPECT_EQ(Take(2), "ab");
  queue_.Done("a");
  timer_.Advance(1000);
  EXPECT_EQ(Take(), "(none)");
}

TEST_F(WorkQueueTest, AnAdditionEndsADelay) {
  queue_.AddAfter("a", 100);
  queue_.Add("a");
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  timer_.Advance(1000);
  EXPECT_EQ(Take(), "(none)");
}

TEST_F(WorkQueueTest, FailuresBackOffKeyByKey) {
  for (std::int64_t most : {100, 200, 400, 800, 1000, 1000}) {
    queue_.AddAfterFailure("a");
    const std::int64_t wait = *queue_.NextDueNs() - timer_.NowNs();
    EXPECT_GE(wait, most / 2);
    EXPECT_LE(wait, most);
    timer_.Advance(wait);
    EXPECT_EQ(Take(), "a");
    queue_.Done("a");
  }
  EXPECT_EQ(queue_.Failures("a"), 6);
  queue_.AddAfterFailure("b");
  EXPECT_LE(*queue_.NextDueNs(), timer_.NowNs() + 100);
  queue_.Forget("a");
  EXPECT_EQ(queue_.Failures("a"), 0);
}

TEST_F(WorkQueueTest, AFailureIsDelayedWhileItsWorkerIsStillAtIt) {
  queue_.Add("a");
  EXPECT_EQ(Take(), "a");
  queue_.AddAfterFailure("a");
  queue_.Done("a");
  EXPECT_EQ(Take(), "(none)");
  timer_.Advance(100);
  EXPECT_EQ(Take(), "a");
}

TEST_F(WorkQueueTest, ClosedTakesNothingInAndGivesOutWhatWaits) {
  queue_.Add("a");
  queue_.AddAfter("b", 1);
  queue_.Close();
  queue_.Add("c");
  timer_.Advance(10);
  EXPECT_EQ(queue_.Take({}), "a");
  EXPECT_EQ(queue_.Take({}), std::nullopt);
}

TEST(WorkQueueThreads, WorkersShareKeysAndNeverOne) {
  WorkQueue queue(RealTimer());
  std::atomic<int> wrong{0}, worked{0};
  std::map<std::string, std::atomic<int>> at_work;
  for (int i = 0; i < 10; ++i) at_work[std::to_string(i)] = 0;
  std::vector<std::thread> workers;
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([&] {
      while (auto key = queue.Take({})) {
        if (at_work[*key]++ != 0) ++wrong;
        std::this_thread::yield();
        --at_work[*key];
        ++worked;
        queue.Done(*key);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    if (i % 3 == 0) {
      queue.AddAfter(std::to_string(i % 10), 1000);
    } else {
      queue.Add(std::to_string(i % 10));
    }
  }
  while (worked < 10) std::this_thread::yield();
  queue.Close();
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST(WorkQueueThreads, AWaitEndsWithADelayAnAdditionOrAStop) {
  WorkQueue queue(RealTimer());
  queue.AddAfter("far", 3600 * kNsPerSecond);
  queue.AddAfter("a", kNsPerMs);
  EXPECT_EQ(queue.Take({}), "a");
  std::thread adder([&] { queue.Add("b"); });
  EXPECT_EQ(queue.Take({}), "b");
  adder.join();
  std::stop_source stop;
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(queue.Take(stop.get_token()), std::nullopt);
  stopper.join();
}

}  // namespace
}  // namespace tessera::kube
