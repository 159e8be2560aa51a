// Waits: how long, how many, and that each ends early when it is asked to.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "kube/pace/backoff.h"
#include "kube/pace/timer.h"
#include "kube/pace/token_bucket.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

TEST(Backoff, DoublesWithJitterUpToItsBound) {
  Backoff backoff({.first_ns = 1000, .most_ns = 4000, .reset_after_ns = 100}, Jitter(1));
  for (std::int64_t step : {1000, 2000, 4000, 4000}) {
    const std::int64_t wait = backoff.NextNs(50);
    EXPECT_GE(wait, step / 2);
    EXPECT_LE(wait, step);
  }
  EXPECT_LE(backoff.NextNs(151), 1000);  // quiet for longer than reset_after_ns
  EXPECT_GE(backoff.NextNs(151), 1000);
  backoff.Reset();
  EXPECT_LE(backoff.NextNs(151), 1000);
}

TEST(Backoff, TwoClientsDoNotComeBackTogether) {
  Backoff one({}, Jitter(1)), other({}, Jitter(2));
  EXPECT_NE(one.NextNs(0), other.NextNs(0));
}

TEST(Jitter, StaysBetweenItsBoundsAndSpreads) {
  Jitter jitter(7);
  int low = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t n = jitter.Between(10, 20);
    ASSERT_GE(n, 10);
    ASSERT_LT(n, 20);
    low += n < 15 ? 1 : 0;
  }
  EXPECT_GT(low, 400);
  EXPECT_LT(low, 600);
  EXPECT_EQ(jitter.Between(5, 5), 5);
}

TEST(TokenBucket, GivesABurstThenTheRate) {
  TokenBucket bucket(10, 3);
  const std::int64_t now = 5 * kNsPerSecond;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(now, kNever), now);
  EXPECT_EQ(bucket.Take(now, kNever), now + kNsPerSecond / 10);
  EXPECT_EQ(bucket.Take(now, kNever), now + kNsPerSecond / 5);
  const std::int64_t later = now + 10 * kNsPerSecond;  // quiet: full again, and no fuller
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(later, kNever), later);
  EXPECT_GT(bucket.Take(later, kNever), later);
}

TEST(TokenBucket, TakesNothingThatWouldComeTooLate) {
  TokenBucket bucket(1, 1);
  EXPECT_EQ(bucket.Take(0, 0), 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bucket.Take(0, kNsPerSecond / 2), std::nullopt);
  EXPECT_EQ(bucket.Take(0, kNever), kNsPerSecond);
}

TEST(TokenBucket, NoRateIsNoLimit) {
  TokenBucket bucket(0, 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(bucket.Take(7, 7), 7);
}

TEST(RealTimer, AWaitEndsAtItsTimeOrWhenItIsStopped) {
  Timer& timer = RealTimer();
  const std::int64_t until = timer.NowNs() + 2 * kNsPerMs;
  EXPECT_TRUE(timer.WaitUntil(until, {}));
  EXPECT_GE(timer.NowNs(), until);
  std::stop_source stop;
  std::jthread asker([&] { stop.request_stop(); });
  EXPECT_FALSE(timer.WaitFor(3600 * kNsPerSecond, stop.get_token()));
}

}  // namespace
}  // namespace tessera::kube
