// Processes and threads of one slice: forks, slots, deaths, races at the limit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "memory/testing/memory_fixture.h"
#include "os/os.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

using testing::kContextBytes;
using testing::kMiB;
using testing::LedgerBytes;
using testing::OnDevice;
using testing::SetLimit;

using Memory = testing::MemoryFixture;

// Runs `body` as the first process of a new pid namespace; its pid as this process sees it, -1
// where that is not allowed.
template <typename Body>
pid_t InOwnPidNamespace(pid_t* helper, Body&& body) {
  int made[2];
  if (pipe(made) != 0) return -1;
  *helper = fork();
  if (*helper == 0) {
    pid_t child = -1;
    if (unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0) child = fork();
    if (child == 0) _exit(body());
    if (write(made[1], &child, sizeof child) != sizeof child) _exit(2);
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100);
  }
  pid_t child = -1;
  if (read(made[0], &child, sizeof child) != sizeof child) child = -1;
  close(made[0]);
  close(made[1]);
  return child;
}

TEST_F(Memory, AProcessWithoutASlotGetsNoMemory) {
  const contract::LedgerView& ledger = testing::Ledger();
  const std::uint64_t refused = ledger.header().slots_refused, high = ledger.header().slots_high;
  const std::uint64_t mine = OwnSlotOrNull()->owner;
  std::vector<std::uint32_t> taken;
  for (std::uint32_t i = 0; i < ledger.slot_count(); ++i) {
    if (ledger.Slot(i).owner != 0) continue;
    ledger.Slot(i).owner = mine;  // alive for everybody who looks
    taken.push_back(i);
  }
  ledger.header().slots_high = ledger.slot_count();
  const pid_t pid = fork();
  if (pid == 0) {
    CUcontext context = nullptr;
    const bool none =
        cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY && context == nullptr;
    _exit(none ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GT(ledger.header().slots_refused, refused);
  for (const std::uint32_t i : taken) ledger.Slot(i).owner = 0;
  ledger.header().slots_high = high;
}

// In the child of a fork the driver is not initialised; its parent's memory is its parent's.
TEST_F(Memory, AForkedChildCannotGiveBackItsParentsMemory) {
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 50 * kMiB), CUDA_SUCCESS);
  const std::uint64_t before = LedgerBytes(0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    cuMemFree_v2(p);  // the fake driver's copy even succeeds
    _exit(LedgerBytes(0) == before ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(LedgerBytes(0), before);
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
}

// By whatever call: only fork() tells the fence.
void ChildHasASlotOfItsOwnThatGoesWithIt(pid_t (*make)()) {
  const std::uint64_t before = LedgerBytes(0);
  const contract::LedgerSlot* mine = OwnSlotOrNull();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t pid = make();
  if (pid == 0) {
    CUcontext context = nullptr;
    CUdeviceptr p = 0;
    char c = 0;
    bool ok = cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_SUCCESS;
    ok = ok && cuMemAlloc_v2(&p, 50 * kMiB) == CUDA_SUCCESS && OwnSlotOrNull() != mine &&
         contract::OwnerPid(OwnSlotOrNull()->owner) ==
             static_cast<std::uint64_t>(syscall(SYS_getpid));
    ok = write(ready[1], ok ? "y" : "n", 1) == 1 && read(done[0], &c, 1) == 1 && ok;
    _exit(ok ? 0 : 1);
  }
  char c = 'n';
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_EQ(c, 'y');
  EXPECT_EQ(LedgerBytes(0), before + kContextBytes + 50 * kMiB);
  EXPECT_EQ(write(done[1], "x", 1), 1);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  SweepSlice(0);
  EXPECT_EQ(LedgerBytes(0), before);
}

pid_t RawClone() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

TEST_F(Memory, AForkedChildHasASlotOfItsOwnThatGoesWithIt) {
  ChildHasASlotOfItsOwnThatGoesWithIt(fork);
}

TEST_F(Memory, AChildWhoseForkNobodyTellsOfHasASlotOfItsOwn) {
  ASSERT_TRUE(detail::g_wiped);
  ChildHasASlotOfItsOwnThatGoesWithIt(_Fork);
  ChildHasASlotOfItsOwnThatGoesWithIt(RawClone);
}

TEST_F(Memory, SoIsItWhereTheParentHasOnlyAskedAndTheKernelWipesNothing) {
  constexpr int kKeepOnFork = 19;  // MADV_KEEPONFORK
  ASSERT_EQ(madvise(&detail::g_own, sizeof detail::g_own, kKeepOnFork), 0);
  detail::g_wiped = false;
  contract::LedgerSlot* mine = std::exchange(detail::g_own.slot, nullptr);
  SweepSlice(0);  // who this process is, is known
  ChildHasASlotOfItsOwnThatGoesWithIt(RawClone);
  detail::g_own.slot = mine;
  detail::g_wiped = os::WipeInChildren(&detail::g_own, sizeof detail::g_own);
  EXPECT_TRUE(detail::g_wiped);
}

TEST_F(Memory, ADeadProcessOfASiblingPidNamespaceIsFound) {
  const std::uint64_t before = LedgerBytes(0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t helper = 0;
  const pid_t holder = InOwnPidNamespace(&helper, [&] {
    CUcontext context = nullptr;
    CUdeviceptr p = 0;
    const bool ok = cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_SUCCESS &&
                    cuMemAlloc_v2(&p, 50 * kMiB) == CUDA_SUCCESS;
    // A child that has only been forked does not keep its parent's memory charged.
    if (ok && fork() == 0) {
      sleep(5);
      _exit(0);
    }
    if (write(ready[1], ok ? "y" : "n", 1) != 1) return 1;
    pause();
    return 0;
  });
  if (holder < 0) GTEST_SKIP() << "this machine allows no pid namespaces";
  char c = 'n';
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  ASSERT_EQ(c, 'y');
  // Swept from here, which the holder's namespace does not see, and from a sibling's.
  const std::uint64_t with = before + kContextBytes + 50 * kMiB;
  const auto sweep_elsewhere = [&](std::uint64_t expected) {
    pid_t other = 0;
    InOwnPidNamespace(&other, [&] {
      SweepSlice(0);
      return LedgerBytes(0) == expected ? 0 : 1;
    });
    int status = 0;
    waitpid(other, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  SweepSlice(0);
  EXPECT_EQ(LedgerBytes(0), with) << "alive";
  EXPECT_EQ(sweep_elsewhere(with), 0) << "alive";
  kill(holder, SIGKILL);
  waitpid(helper, nullptr, 0);
  // The kernel drops the lock with the address space, which whoever reads the dead process' files
  // in /proc at that moment keeps for a little while.
  int seen = sweep_elsewhere(before);
  for (int again = 0; seen != 0 && again < 500; ++again) {
    usleep(10'000);
    seen = sweep_elsewhere(before);
  }
  EXPECT_EQ(seen, 0) << "dead, seen from a sibling namespace";
  SweepSlice(0);
  EXPECT_EQ(LedgerBytes(0), before);
  close(ready[0]);
  close(ready[1]);
}

// Runs `body` in a new time namespace whose clock of start times is 100,000 s ahead; -1 where that
// is not allowed.
template <typename Body>
pid_t InOwnTimeNamespace(Body&& body) {
  constexpr int kNewTime = 0x80;  // CLONE_NEWTIME
  int made[2];
  if (pipe(made) != 0) return -1;
  const pid_t helper = fork();
  if (helper == 0) {
    pid_t child = -1;
    if (unshare(kNewTime) == 0 || unshare(CLONE_NEWUSER | kNewTime) == 0) {
      const int offsets = open("/proc/self/timens_offsets", O_WRONLY);
      constexpr std::string_view kAhead = "boottime 100000 0\n";
      if (write(offsets, kAhead.data(), kAhead.size()) > 0) child = fork();
      close(offsets);
    }
    if (child == 0) _exit(body());
    const bool told = write(made[1], &child, sizeof child) == sizeof child;
    int status = 0;
    waitpid(child, &status, 0);
    _exit(told && WIFEXITED(status) ? WEXITSTATUS(status) : 100);
  }
  pid_t child = -1;
  if (read(made[0], &child, sizeof child) != sizeof child) child = -1;
  close(made[0]);
  close(made[1]);
  if (child < 0) waitpid(helper, nullptr, 0);
  return child < 0 ? -1 : helper;
}

TEST_F(Memory, AProcessOfAnotherTimeNamespaceIsAliveUntilItEnds) {
  const std::uint64_t before = LedgerBytes(0);
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t helper = InOwnTimeNamespace([&] {
    SweepSlice(0);
    bool ok = LedgerBytes(0) == before;  // who sees all others start at another time
    CUcontext context = nullptr;
    char c = 0;
    ok = ok && cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_SUCCESS;
    return write(ready[1], ok ? "y" : "n", 1) == 1 && read(done[0], &c, 1) == 1 ? 0 : 1;
  });
  if (helper < 0) GTEST_SKIP() << "this machine allows no time namespaces";
  char c = 'n';
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_EQ(c, 'y') << "the others are alive for it";
  SweepSlice(0);
  EXPECT_EQ(LedgerBytes(0), before + kContextBytes) << "it is alive for the others";
  EXPECT_EQ(write(done[1], "x", 1), 1);
  int status = 0;
  waitpid(helper, &status, 0);
  EXPECT_EQ(status, 0);
  for (int again = 0; LedgerBytes(0) != before && again < 500; ++again) {
    usleep(10'000);  // as long as somebody reads the dead process' files in /proc
    SweepSlice(0);
  }
  EXPECT_EQ(LedgerBytes(0), before);
}

TEST_F(Memory, ThreadsMixAllFamilies) {
  SetLimit(0, base_ + 200 * kMiB);
  std::atomic<bool> stop = false, passed = false;
  std::vector<std::thread> threads;
  for (int n = 0; n < 6; ++n) {
    threads.emplace_back([&, n] {
      real::cuCtxSetCurrent(context_);
      std::minstd_rand random(n + 1);
      const CUmemAllocationProp prop = OnDevice(0);
      std::vector<std::pair<int, std::uint64_t>> live;
      for (int i = 0; i < 3000; ++i) {
        const int what = random() % 4;
        std::uint64_t made = 0;
        CUresult r = CUDA_ERROR_UNKNOWN;
        const std::uint64_t size =
            random() % 3 == 0 ? 1 + random() % (8 * kMiB) : 1 + random() % 9000;
        if (what < 2) r = cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(&made), size);
        if (what == 2) r = cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(&made), size, nullptr);
        if (what == 3)
          r = cuMemCreate(reinterpret_cast<CUmemGenericAllocationHandle*>(&made), 2 * kMiB, &prop,
                          0);
        if (r == CUDA_SUCCESS) {
          live.emplace_back(what, made);
        } else if (r != CUDA_ERROR_OUT_OF_MEMORY) {
          passed = true;
        }
        if (LedgerBytes(0) > base_ + 200 * kMiB) passed = true;
        while (!live.empty() && (live.size() > 20 || random() % 2 == 0)) {
          const auto [kind, value] = live.back();
          live.pop_back();
          const CUresult freed = kind == 3   ? cuMemRelease(value)
                                 : kind == 2 ? cuMemFreeAsync(value, nullptr)
                                             : cuMemFree_v2(value);
          if (freed != CUDA_SUCCESS) passed = true;
        }
        std::size_t free = 0, total = 0;
        cuMemGetInfo_v2(&free, &total);
        if (i % 50 == 0) cuStreamSynchronize(nullptr);
      }
      for (const auto& [kind, value] : live) kind == 3 ? cuMemRelease(value) : cuMemFree_v2(value);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  EXPECT_FALSE(passed);
  cuStreamSynchronize(nullptr);
  Same();
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, ProcessesRaceAtTheLimitAndNeverPassIt) {
  SetLimit(0, base_ + 4 * kContextBytes + 64 * kMiB);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> children;
  for (int n = 0; n < 4; ++n) {
    const pid_t pid = fork();
    if (pid == 0) {
      CUcontext context = nullptr;
      bool bad = cuCtxCreate_v4(&context, nullptr, 0, 0) != CUDA_SUCCESS;
      // Nobody allocates before all have their contexts: there is room for those, not for whatever
      // comes first.
      char c = 0;
      bad = write(ready[1], "r", 1) != 1 || read(go[0], &c, 1) != 1 || bad;
      std::minstd_rand random(n + 1);
      for (int i = 0; i < 5000 && !bad; ++i) {
        CUdeviceptr p = 0;
        const CUresult r = cuMemAlloc_v2(&p, 1 + random() % (40 * kMiB));
        bad = LedgerBytes(0) > base_ + 4 * kContextBytes + 64 * kMiB ||
              (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY);
        if (r == CUDA_SUCCESS) bad = bad || cuMemFree_v2(p) != CUDA_SUCCESS;
      }
      _exit(bad ? 1 : 0);
    }
    children.push_back(pid);
  }
  char c = 0;
  for (int n = 0; n < 4; ++n) ASSERT_EQ(read(ready[0], &c, 1), 1);
  ASSERT_EQ(write(go[1], "gggg", 4), 4);
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const int end : {ready[0], ready[1], go[0], go[1]}) close(end);
  SweepSlice(0);
  EXPECT_EQ(LedgerBytes(0), base_);
}

}  // namespace
}  // namespace tessera::fence
