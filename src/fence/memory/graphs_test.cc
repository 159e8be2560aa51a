// Graphs that hold memory: what their launches may take is reserved before, on every card.
#include <gtest/gtest.h>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::EndGraphUse;
using testing::GraphNode;
using testing::GrowInNextLaunch;
using testing::Held;
using testing::kMiB;
using testing::MakeGraph;
using testing::SetLimit;
using testing::TakeHighestBytes;

constexpr CUdeviceptr kAddress = CUdeviceptr{3} << 40;

class Graphs : public testing::MemoryFixture {
 protected:
  void TearDown() override {
    EndGraphUse();
    for (CUgraphExec exec : execs_) EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    for (int device : {0, 1}) EXPECT_EQ(cuDeviceGraphMemTrim(device), CUDA_SUCCESS);
    Same();
    MemoryFixture::TearDown();
  }
  CUgraphExec Exec(std::vector<GraphNode> nodes) {
    CUgraphExec exec = nullptr;
    if (cuGraphInstantiateWithFlags(&exec, MakeGraph(std::move(nodes)), 0) != CUDA_SUCCESS)
      return nullptr;
    execs_.push_back(exec);
    return exec;
  }
  static std::vector<GraphNode> Nodes(int count, std::uint64_t bytes, CUdeviceptr address,
                                      std::uint64_t stride) {
    std::vector<GraphNode> nodes;
    for (int i = 0; i < count; ++i)
      nodes.push_back({0, bytes, address + static_cast<std::uint64_t>(i) * stride});
    return nodes;
  }
  std::vector<CUgraphExec> execs_;
};

TEST_F(Graphs, MemoryIsChargedWhenTheGraphIsLaunched) {
  SetLimit(0, base_ + 40 * kMiB);
  CUgraphExec exec = nullptr, large = nullptr;
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, reinterpret_cast<CUgraph>(30 * kMiB), 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 0u);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 30 * kMiB);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&large, reinterpret_cast<CUgraph>(80 * kMiB), 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(large, nullptr);
  Same();
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 0u);
  Same();
}

TEST_F(Graphs, BranchesThatMayRunAtOnceNeedTheSumOfTheirs) {
  SetLimit(0, base_ + 30 * kMiB);
  EXPECT_EQ(Exec(Nodes(10, 10 * kMiB, kAddress, 64 * kMiB)), nullptr)
      << "each frees before the next was made, but nothing makes the next one wait";
  CUgraphExec fits = Exec(Nodes(3, 10 * kMiB, kAddress, 64 * kMiB));
  ASSERT_NE(fits, nullptr) << "the sum fits";
  ASSERT_EQ(cuGraphLaunch(fits, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 30 * kMiB);
  Same();
}

TEST_F(Graphs, NodesThatShareAnAddressAreCountedOnce) {
  SetLimit(0, base_ + 30 * kMiB);
  CUgraphExec chain = Exec(Nodes(10, 10 * kMiB, kAddress, 0));
  ASSERT_NE(chain, nullptr);
  CUgraphExec steps = Exec(Nodes(10, 12 * kMiB, kAddress, 2 * kMiB));
  ASSERT_NE(steps, nullptr) << "ten that overlap cover 30 MiB";
  EXPECT_EQ(Exec(Nodes(11, 12 * kMiB, kAddress, 2 * kMiB)), nullptr);
  ASSERT_EQ(cuGraphLaunch(chain, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 10 * kMiB);
  Same();
}

TEST_F(Graphs, AnotherGraphDoesNotCountOnWhatTheFirstHoldsInVain) {
  SetLimit(0, base_ + 30 * kMiB);
  CUgraphExec first = Exec({{0, 20 * kMiB, kAddress}});
  CUgraphExec second = Exec({{0, 20 * kMiB, 2 * kAddress}});
  ASSERT_TRUE(first != nullptr && second != nullptr);
  TakeHighestBytes(0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cuGraphLaunch(first, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(second, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(Held(0, Kind::kGraph), 20 * kMiB);
    Same();
  }
  EXPECT_LE(TakeHighestBytes(0), base_ + 30 * kMiB);
}

TEST_F(Graphs, AGraphThatIsLaunchedAgainNeedsNothingMore) {
  SetLimit(0, base_ + 30 * kMiB);
  CUgraphExec exec = Exec({{0, 30 * kMiB, kAddress}});
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  SetLimit(0, base_ + 10 * kMiB);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS) << "a limit that fell takes nothing away";
  ASSERT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_OUT_OF_MEMORY) << "it would take it anew";
  EXPECT_EQ(Held(0, Kind::kGraph), 0u);
}

TEST_F(Graphs, WhatTheyTakeUnaskedIsTrimmed) {
  SetLimit(0, base_ + 30 * kMiB);
  CUgraphExec exec = Exec({{0, 20 * kMiB, kAddress}});
  GrowInNextLaunch(40 * kMiB, false);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 0u);
  Same();
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
}

TEST_F(Graphs, NoneIsLaunchedWhileTheyHoldMoreThanTheLimit) {
  SetLimit(0, base_ + 30 * kMiB);
  CUgraphExec exec = Exec({{0, 2 * kMiB, kAddress}});
  GrowInNextLaunch(40 * kMiB, true);
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 40 * kMiB) << "in use: charged, whatever the limit";
  Same();
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EndGraphUse();
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 2 * kMiB);
  Same();
}

TEST_F(Graphs, EachCardIsChargedItsOwnNodes) {
  SetLimit(0, base_ + 30 * kMiB);
  SetLimit(1, base_ + 30 * kMiB);
  EXPECT_EQ(Exec({{0, 40 * kMiB, kAddress}, {1, 2 * kMiB, 2 * kAddress}}), nullptr);
  EXPECT_EQ(Exec({{0, 2 * kMiB, kAddress}, {1, 40 * kMiB, 2 * kAddress}}), nullptr);
  CUgraphExec both = Exec({{0, 20 * kMiB, kAddress}, {1, 10 * kMiB, 2 * kAddress}});
  ASSERT_NE(both, nullptr);
  ASSERT_EQ(cuGraphLaunch(both, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kGraph), 20 * kMiB);
  EXPECT_EQ(Held(1, Kind::kGraph), 10 * kMiB);
}

}  // namespace
}  // namespace tessera::fence
