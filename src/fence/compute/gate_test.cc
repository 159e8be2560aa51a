// The gate: holds while closed and guarded, opens for the word, for a stale heart and for none.
#include "compute/gate.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "contract/atomics.h"
#include "contract/ledger_ops.h"
#include "memory/graphs.h"
#include "os/os.h"
#include "real.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

contract::PolicyFile* policy = nullptr;  // as the agent maps it
std::atomic<int> launches = 0;

void MakeSlice() {
  char pattern[] = "/tmp/tessera-gate-XXXXXX";
  const std::string directory = mkdtemp(pattern);
  static contract::PolicyFile content;
  content.header.magic = contract::kPolicyMagic;
  content.header.layout = contract::kPolicyLayout;
  content.header.file_bytes = sizeof content;
  content.header.cards_offset = offsetof(contract::PolicyFile, cards);
  content.header.card_stride = sizeof(contract::PolicyCard);
  content.header.card_count = 1;
  content.header.gates_offset = offsetof(contract::PolicyFile, gates);
  content.header.gate_stride = sizeof(contract::PolicyGate);
  content.cards[0].uuid[0] = 1;
  content.cards[0].limit_bytes = content.cards[0].ceiling_bytes = 1 << 30;
  content.cards[0].compute_percent = 100;
  static contract::LedgerFile ledger;
  contract::InitLedger(ledger);
  FILE* file = std::fopen((directory + "/policy").c_str(), "wb");
  std::fwrite(&content, sizeof content, 1, file);
  std::fclose(file);
  file = std::fopen((directory + "/ledger").c_str(), "wb");
  std::fwrite(&ledger, sizeof ledger, 1, file);
  std::fclose(file);
  const int descriptor = os::Open((directory + "/policy").c_str(), os::Access::kReadWrite);
  policy = static_cast<contract::PolicyFile*>(
      os::MapShared(descriptor, sizeof content, os::Access::kReadWrite));
  os::Close(descriptor);
  setenv("TESSERA_SLICE_DIR", directory.c_str(), 1);
  ASSERT_EQ(AttachSlice(), Mode::kFenced) << SliceProblem();
  unlink((directory + "/policy").c_str());
  unlink((directory + "/ledger").c_str());
  rmdir(directory.c_str());
}

class GateTest : public testing::Test {
 protected:
  void SetUp() override {
    if (policy == nullptr) MakeSlice();
    launches = 0;
    real::cuLaunchKernel = [](CUfunction, unsigned x, unsigned y, unsigned z, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,
                              void** parameters, void** extra) {
      ++launches;
      const bool intact = x == 1 && y == 2 && z == 3 && bx == 4 && by == 5 && bz == 6 &&
                          shared == 7 && stream == reinterpret_cast<CUstream>(8) &&
                          parameters == reinterpret_cast<void**>(9) &&
                          extra == reinterpret_cast<void**>(10);
      return intact ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    Heart(os::MonotonicNs());
    Gate(0);
  }
  static void Gate(std::uint32_t value) { contract::Store(policy->gates[0].word, value); }
  static void Heart(std::uint64_t at) { contract::Store(policy->header.heartbeat_ns, at); }
  static CUresult Launch() {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(11), 1, 2, 3, 4, 5, 6, 7,
                          reinterpret_cast<CUstream>(8), reinterpret_cast<void**>(9),
                          reinterpret_cast<void**>(10));
  }
};

TEST_F(GateTest, OpenGatePassesEveryArgument) {
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(launches, 2);
}

TEST_F(GateTest, ClosedGateHoldsUntilItIsOpened) {
  Gate(1);
  std::atomic<bool> beating = true;
  std::thread agent([&] {
    while (beating) {
      Heart(os::MonotonicNs());
      os::SleepNs(10'000'000);
    }
  });
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread program([&] { result = Launch(); });
  os::SleepNs(100'000'000);
  EXPECT_EQ(launches, 0) << "went through a closed gate";
  Gate(0);
  os::FutexWake(&policy->gates[0].word);
  program.join();
  beating = false;
  agent.join();
  EXPECT_EQ(result, CUDA_SUCCESS) << "arguments must survive the wait";
  EXPECT_EQ(launches, 1);
}

TEST_F(GateTest, WatchedLaunchesAskAndFreeOnesDoNot) {
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(*tessera_gate_word, 0u);
  WatchLaunches(true);
  EXPECT_NE(*tessera_gate_word, 0u);
  EXPECT_EQ(Launch(), CUDA_SUCCESS) << "a function of a module has nothing to load";
  EXPECT_NE(*tessera_gate_word, 0u) << "as long as they are watched";
  WatchLaunches(false);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(*tessera_gate_word, 0u);
  EXPECT_EQ(launches, 3);
}

TEST_F(GateTest, WithoutAHeartTheGateIsOpen) {
  Gate(1);
  Heart(0);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  Heart(os::MonotonicNs() - 1'100'000'000);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  Heart(os::MonotonicNs() + 3'600'000'000'000);
  EXPECT_EQ(Launch(), CUDA_SUCCESS) << "a beat from the future is another clock's";
  EXPECT_EQ(launches, 3);
}

TEST_F(GateTest, AHeartThatStopsOpensTheGate) {
  Gate(1);
  const std::uint64_t last_beat = os::MonotonicNs();
  Heart(last_beat);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_GE(os::MonotonicNs() - last_beat, kHeartStopsNs) << "went through while it was guarded";
  EXPECT_EQ(launches, 1);
}

// What generated thunks do by machine code, wrappers of other families do by PassGate().
TEST_F(GateTest, WrappersWaitAtTheSameGate) {
  Heart(os::MonotonicNs());
  PassGate();
  Gate(1);
  const std::uint64_t last_beat = os::MonotonicNs();
  Heart(last_beat);
  PassGate();
  EXPECT_GE(os::MonotonicNs() - last_beat, kHeartStopsNs) << "went through while it was guarded";
  std::atomic<bool> passed = false;
  Heart(os::MonotonicNs() + kHeartStopsNs / 2);
  std::thread wrapper([&] {
    PassGate();
    passed = true;
  });
  os::SleepNs(50'000'000);
  EXPECT_FALSE(passed) << "went through a closed gate";
  Gate(0);
  os::FutexWake(&policy->gates[0].word);
  wrapper.join();
  EXPECT_TRUE(passed);
}

// Last: a graph with memory is never forgotten.
TEST_F(GateTest, ZGraphLaunchesAreFreeUntilAGraphHasMemory) {
  real::cuGraphLaunch = [](CUgraphExec, CUstream) {
    ++launches;
    return CUDA_SUCCESS;
  };
  const auto exec = reinterpret_cast<CUgraphExec>(64), other = reinterpret_cast<CUgraphExec>(128);
  EXPECT_EQ(cuGraphLaunch(other, nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(LaunchesAreFree());
  Gate(1);
  EXPECT_FALSE(LaunchesAreFree()) << "goes through a closed gate";
  Heart(0);
  EXPECT_EQ(cuGraphLaunch(other, nullptr), CUDA_SUCCESS);
  Gate(0);
  EXPECT_TRUE(LaunchesAreFree());
  NoteExec(exec, {1, 1, 0});
  EXPECT_FALSE(LaunchesAreFree()) << "graph memory would not be charged";
  EXPECT_EQ(cuGraphLaunch(other, nullptr), CUDA_SUCCESS);
  EXPECT_FALSE(LaunchesAreFree());
  EXPECT_EQ(launches, 3);
}

}  // namespace
}  // namespace tessera::fence
