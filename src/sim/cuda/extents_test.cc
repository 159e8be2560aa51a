#include "sim/cuda/extents.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::sim {
namespace {

TEST(FreeExtents, JoinsNeighboursAndFillsTheSmallestHole) {
  FreeExtents free;
  free.Give(0, 100);
  std::uint64_t base = 0;
  ASSERT_TRUE(free.TakeAt(10, 10));
  ASSERT_TRUE(free.TakeAt(40, 20));
  ASSERT_TRUE(free.Take(10, 1, &base));
  EXPECT_EQ(base, 0u);  // hole of 10 before one of 20 and one of 40
  ASSERT_TRUE(free.TakeLast(8, 8, &base));
  EXPECT_EQ(base, 88u);
  EXPECT_FALSE(free.TakeAt(85, 10));
  for (auto [b, n] : {std::pair{0, 10}, {10, 10}, {40, 20}, {88, 8}}) free.Give(b, n);
  ASSERT_TRUE(free.Take(100, 1, &base));
  EXPECT_FALSE(free.Take(1, 1, &base));
}

TEST(FreeExtents, AlignsWithoutLosingWhatLiesBefore) {
  FreeExtents free;
  free.Give(3, 61);
  std::uint64_t base = 0;
  ASSERT_TRUE(free.Take(32, 16, &base));
  EXPECT_EQ(base, 16u);
  EXPECT_TRUE(free.TakeAt(3, 13));
  EXPECT_TRUE(free.TakeAt(48, 16));
}

// Against a plain bitmap.
TEST(FreeExtents, NeverGivesTheSameTwice) {
  std::mt19937 random(1);
  constexpr std::uint64_t kSpace = 512;
  std::vector<bool> taken(kSpace, false);
  FreeExtents free;
  free.Give(0, kSpace);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 && !live.empty()) {
      const std::size_t i = random() % live.size();
      for (std::uint64_t j = 0; j < live[i].second; ++j) taken[live[i].first + j] = false;
      free.Give(live[i].first, live[i].second);
      live[i] = live.back();
      live.pop_back();
      continue;
    }
    const std::uint64_t bytes = 1 + random() % 40, alignment = 1u << random() % 4;
    std::uint64_t base = 0;
    const bool last = random() % 3 == 0;
    if (!(last ? free.TakeLast(bytes, alignment, &base) : free.Take(bytes, alignment, &base)))
      continue;
    ASSERT_EQ(base % alignment, 0u);
    for (std::uint64_t j = 0; j < bytes; ++j) {
      ASSERT_FALSE(taken.at(base + j));
      taken[base + j] = true;
    }
    live.emplace_back(base, bytes);
  }
}

}  // namespace
}  // namespace tessera::sim
