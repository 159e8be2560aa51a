#include "sim/cuda/handles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::sim {
namespace {

struct Thing {
  static constexpr HandleKind kKind = HandleKind::kEvent;
  using Handle = std::uint64_t;
  int value;
};
struct Other {
  static constexpr HandleKind kKind = HandleKind::kStream;
  using Handle = std::uint64_t;
};

TEST(Handles, AreFoundOnlyWhileTheyLive) {
  Thing thing{7};
  const std::uint64_t handle = NewHandle(&thing);
  EXPECT_GT(handle, 2u);
  EXPECT_EQ(Find<Thing>(handle), &thing);
  EXPECT_EQ(Find<Other>(handle), nullptr);
  EXPECT_EQ(RemoveHandle<Thing>(handle), &thing);
  EXPECT_EQ(Find<Thing>(handle), nullptr);
  EXPECT_EQ(RemoveHandle<Thing>(handle), nullptr);
}

TEST(Handles, AnyValueMayBeAsked) {
  Thing thing{};
  const std::uint64_t handle = NewHandle(&thing);
  for (std::uint64_t bad :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, ~std::uint64_t{0}, handle + 1,
        handle + 16, handle | std::uint64_t{1} << 47, handle + (std::uint64_t{1} << 24),
        reinterpret_cast<std::uint64_t>(&thing)})
    EXPECT_EQ(Find<Thing>(bad), nullptr) << std::hex << bad;
  RemoveHandle<Thing>(handle);
}

TEST(Handles, StaleOnesAreNotSoonSomebodyElses) {
  Thing a{1}, b{2};
  std::vector<std::uint64_t> stale;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t handle = NewHandle(&a);
    RemoveHandle<Thing>(handle);
    stale.push_back(handle);
  }
  const std::uint64_t live = NewHandle(&b);
  for (std::uint64_t handle : stale) EXPECT_NE(Find<Thing>(handle), &b);
  EXPECT_EQ(RemoveHandle<Thing>(live), &b);
}

TEST(Handles, ThreadsFindTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<bool> wrong{false};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&wrong, t] {
      std::vector<Thing> things(200, Thing{t});
      std::vector<std::uint64_t> handles(things.size());
      for (int round = 0; round < 50; ++round) {
        for (std::size_t i = 0; i < things.size(); ++i) handles[i] = NewHandle(&things[i]);
        for (std::size_t i = 0; i < things.size(); ++i)
          if (Find<Thing>(handles[i]) != &things[i]) wrong = true;
        for (std::size_t i = 0; i < things.size(); ++i)
          if (RemoveHandle<Thing>(handles[i]) != &things[i]) wrong = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
}

}  // namespace
}  // namespace tessera::sim
