// The wrappers of memory calls against a driver in the test's own process: what the ledger says is
// what the driver has given.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "memory/testing/fake_driver.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::DriverBytes;
using testing::Held;
using testing::kContextBytes;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;

constexpr std::uint64_t kRoom = std::uint64_t{10} << 30;

// One context on each card, the first one current.
class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::Install();
    SetLimit(0, kRoom);
    SetLimit(1, kRoom);
    ASSERT_EQ(cuCtxCreate_v4(&other_, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    base_ = LedgerBytes(0);
    EXPECT_EQ(base_, kContextBytes);
  }
  void TearDown() override {
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDestroy_v2(other_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
    EXPECT_EQ(LedgerBytes(1), 0u);
    EXPECT_TRUE(contract::IsValid(testing::Ledger()));
  }
  void Same() {
    EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
    EXPECT_EQ(LedgerBytes(1), DriverBytes(1));
  }
  void OnCard(int card) { real::cuCtxSetCurrent(card == 0 ? context_ : other_); }

  CUcontext context_ = nullptr, other_ = nullptr;
  std::uint64_t base_ = 0;
};

TEST_F(Memory, ChargesWhatTheDriverTakes) {
  std::vector<CUdeviceptr> pointers;
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{4096}, kMiB, kMiB + 1, 2 * kMiB, 3 * kMiB, 100 * kMiB}) {
    CUdeviceptr p = 0;
    ASSERT_EQ(cuMemAlloc_v2(&p, size), CUDA_SUCCESS);
    pointers.push_back(p);
    Same();
  }
  for (const CUdeviceptr p : pointers) {
    ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
    Same();
  }
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, TheLimitHoldsToTheByte) {
  SetLimit(0, base_ + 10 * kMiB);
  CUdeviceptr p = 0, q = 77;
  ASSERT_EQ(cuMemAlloc_v2(&p, 10 * kMiB), CUDA_SUCCESS);
  const int calls = testing::AllocationCalls();
  const std::uint64_t denied = testing::Denied(0);
  EXPECT_EQ(cuMemAlloc_v2(&q, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 77u) << "an out-pointer is touched only on success";
  EXPECT_EQ(testing::AllocationCalls(), calls) << "what does not fit never reaches the driver";
  EXPECT_EQ(testing::Denied(0), denied + 2);
  Same();
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&q, 2 * kMiB), CUDA_SUCCESS);
  cuMemFree_v2(q);
}

TEST_F(Memory, AFullSliceStillGivesRoomInAChargedBlock) {
  SetLimit(0, base_ + 2 * kMiB);
  std::vector<CUdeviceptr> pointers(4);
  for (CUdeviceptr& p : pointers) ASSERT_EQ(cuMemAlloc_v2(&p, kMiB / 2), CUDA_SUCCESS);
  CUdeviceptr q = 5;
  EXPECT_EQ(cuMemAlloc_v2(&q, kMiB / 2), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 5u);
  Same();
  for (const CUdeviceptr p : pointers) cuMemFree_v2(p);
}

TEST_F(Memory, ALimitThatIsRaisedCountsAtOnce) {
  SetLimit(0, base_);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  SetLimit(0, base_ + 4 * kMiB);
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_SUCCESS);
  SetLimit(0, kMiB);  // below what is held: nothing is taken away, nothing more is given
  std::size_t free = 1, total = 1;
  EXPECT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(total, kMiB);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
}

TEST_F(Memory, DriverErrorsAreTheDriversAndCostNothing) {
  CUdeviceptr p = 9;
  testing::FailNext(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  testing::FailNext(CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(cuMemAlloc_v2(&p, 100), CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(p, 9u);
  EXPECT_EQ(LedgerBytes(0), base_);
  ASSERT_EQ(cuMemAlloc_v2(&p, 4 * kMiB), CUDA_SUCCESS);
  testing::FailNext(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
  Same();
  EXPECT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE) << "freed twice: the driver says so";
  EXPECT_EQ(cuMemFree_v2(0x123456), CUDA_ERROR_INVALID_VALUE)
      << "unknown pointers go to the driver";
}

TEST_F(Memory, NullGoesToTheDriver) {
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 100), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr p;
  EXPECT_EQ(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
  std::size_t one = 0;
  EXPECT_EQ(cuMemGetInfo_v2(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetInfo_v2(&one, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(one, kRoom - base_);
  EXPECT_EQ(cuMemGetInfo_v2(nullptr, &one), CUDA_SUCCESS);
  EXPECT_EQ(one, kRoom);
  real::cuCtxSetCurrent(nullptr);
  EXPECT_EQ(cuMemAlloc_v2(&p, 100), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Memory, PitchIsChargedAsTheDriverSetsIt) {
  CUdeviceptr p = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&p, &pitch, 100, 20000, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  Same();
  SetLimit(0, base_ + 30 * kMiB);
  CUdeviceptr q = 3;
  // The guess (512 a row) fits, what the driver makes of it does not: freed again and refused.
  EXPECT_EQ(cuMemAllocPitch_v2(&q, &pitch, 100, 20000, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 3u);
  Same();
  cuMemFree_v2(p);
}

TEST_F(Memory, ManagedIsChargedInFull) {
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocManaged(&p, 64 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kManaged), 64 * kMiB);
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kManaged), 0u);
}

TEST_F(Memory, EachCardHasItsOwnBooksAndFreesCountWhereTheMemoryIs) {
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 8 * kMiB), CUDA_SUCCESS);
  OnCard(1);
  ASSERT_EQ(cuMemAlloc_v2(&q, 6 * kMiB), CUDA_SUCCESS);
  Same();
  ASSERT_EQ(cuMemFree_v2(p), CUDA_SUCCESS);  // freed with the other card's context current
  Same();
  OnCard(0);
  ASSERT_EQ(cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  Same();
}

TEST_F(Memory, AContextTakesItsMemoryWithIt) {
  CUcontext third = nullptr;
  ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  CUdeviceptr p = 0;
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR d{1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(cuMemAlloc_v2(&p, i % 2 == 0 ? 4096 : 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayCreate_v2(&array, &d), CUDA_SUCCESS);
  Same();
  ASSERT_EQ(cuCtxDestroy_v2(third), CUDA_SUCCESS);
  Same();
  EXPECT_EQ(LedgerBytes(0), base_);
  OnCard(0);
}

TEST_F(Memory, PrimaryContextsAreCountedByTheDriversReferences) {
  CUcontext one = nullptr, two = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&one, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&two, 0), CUDA_SUCCESS);
  EXPECT_EQ(one, two);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  real::cuCtxSetCurrent(one);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAlloc_v2(&p, 20 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes + 20 * kMiB) << "one reference is left";
  ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
  Same();
  OnCard(0);
}

TEST_F(Memory, AContextThatDoesNotFitIsRefused) {
  SetLimit(0, base_ + kContextBytes - 1);
  CUcontext third = nullptr;
  EXPECT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&third, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(third, nullptr);
  Same();
}

TEST_F(Memory, AContextOfUnknownCostIsMeasuredOnceForTheSlice) {
  testing::SetKnownContextBytes(0);
  for (int i = 0; i < 2; ++i) {
    CUcontext third = nullptr;
    ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
    Same();
    ASSERT_EQ(cuCtxDestroy_v2(third), CUDA_SUCCESS);
    OnCard(0);
  }
  SetLimit(0, base_ + kContextBytes - 1);
  CUcontext refused = nullptr;
  EXPECT_EQ(cuCtxCreate_v4(&refused, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  testing::SetKnownContextBytes(kContextBytes);
}

TEST_F(Memory, TheOldUsageCountKeepsAContext) {
  CUcontext third = nullptr, same = nullptr;
  ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxAttach(&same, 0), CUDA_SUCCESS);
  EXPECT_EQ(same, third);
  ASSERT_EQ(cuCtxDetach(third), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  ASSERT_EQ(cuCtxDetach(third), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
  Same();
  OnCard(0);
}

TEST_F(Memory, ADeviceHeapIsChargedAndRefusedWhereItDoesNotFit) {
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 40 * kMiB), CUDA_SUCCESS);
  Same();
  SetLimit(0, LedgerBytes(0) + 10 * kMiB);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 60 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_ERROR_UNSUPPORTED_LIMIT);
  Same();
}

TEST_F(Memory, CodeIsMeasuredRefusedAndGivenBack) {
  CUmodule module = nullptr, refused = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, "image"), CUDA_SUCCESS);
  Same();
  SetLimit(0, LedgerBytes(0) + 4 * kMiB);
  EXPECT_EQ(cuModuleLoadData(&refused, "image"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused, nullptr);
  Same();
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, ALibraryIsChargedWhenItIsFirstUsed) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
  ASSERT_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  Same();
  ASSERT_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  Same();
  ASSERT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  Same();
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Memory, GraphMemoryIsChargedWhenTheGraphIsLaunched) {
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

TEST_F(Memory, The32BitFormsAreChargedAlike) {
  CUdeviceptr_v1 p = 0, q = 3;
  ASSERT_EQ(cuMemAlloc(&p, 6 * kMiB), CUDA_SUCCESS);
  Same();
  SetLimit(0, LedgerBytes(0) + kMiB);
  EXPECT_EQ(cuMemAlloc(&q, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 3u);
  ASSERT_EQ(cuMemFree(p), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
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

TEST_F(Memory, PoolsAreChargedByWhatTheyReserve) {
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 30 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB)
      << "the pool holds it until the stream is synchronised";
  ASSERT_EQ(cuMemAllocAsync(&q, 20 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 30 * kMiB);
  ASSERT_EQ(cuMemFree_v2(q), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
  Same();
}

TEST_F(Memory, APoolCannotGrowPastTheLimitAndGivesBackBeforeOthersAreRefused) {
  SetLimit(0, base_ + 50 * kMiB);
  CUdeviceptr p = 0, q = 4;
  ASSERT_EQ(cuMemAllocAsync(&p, 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocAsync(&q, 20 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(q, 4u);
  Same();
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&q, 48 * kMiB), CUDA_SUCCESS)
      << "what the pool holds in vain is not in the way";
  Same();
  cuMemFree_v2(q);
}

TEST_F(Memory, ADestroyedPoolIsChargedUntilItsLastAllocationGoes) {
  CUmemPoolProps props{};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  cuuint64_t keep = UINT64_MAX;
  ASSERT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), CUDA_SUCCESS);
  CUdeviceptr p = 0, q = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 10 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&q, 6 * kMiB, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(q, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 16 * kMiB) << "above the threshold only";
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 10 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
  Same();
}

CUmemAllocationProp OnDevice(int card) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, card};
  return prop;
}

TEST_F(Memory, PhysicalMemoryLivesUntilLastHandleAndMapping) {
  const CUmemAllocationProp prop = OnDevice(1);
  CUmemGenericAllocationHandle h = 0, again = 0;
  ASSERT_EQ(cuMemCreate(&h, 16 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(Held(1, Kind::kVmm), 16 * kMiB)
      << "charged to the location, not to the current context's card";
  ASSERT_EQ(cuMemMap(0x7000000000, 16 * kMiB, 0, h, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(0x7001000000, 16 * kMiB, 0, h, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(h), CUDA_SUCCESS);
  EXPECT_EQ(Held(1, Kind::kVmm), 16 * kMiB);
  ASSERT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(0x7000000000 + 5 * kMiB)),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(0x7000000000, 32 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Held(1, Kind::kVmm), 16 * kMiB) << "the retained handle holds it";
  Same();
  ASSERT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(Held(1, Kind::kVmm), 0u);
  Same();
  EXPECT_EQ(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, HostMemoryOfTheVmmIsNotCharged) {
  CUmemAllocationProp prop = OnDevice(0);
  prop.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemGenericAllocationHandle h = 0;
  ASSERT_EQ(cuMemCreate(&h, kRoom * 2, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
  ASSERT_EQ(cuMemRelease(h), CUDA_SUCCESS);
}

TEST_F(Memory, TheVmmObeysTheLimit) {
  SetLimit(0, base_ + 16 * kMiB);
  const CUmemAllocationProp prop = OnDevice(0);
  CUmemGenericAllocationHandle h = 0, i = 6;
  ASSERT_EQ(cuMemCreate(&h, 10 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemCreate(&i, 8 * kMiB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(i, 6u);
  ASSERT_EQ(cuMemRelease(h), CUDA_SUCCESS);
  Same();
}

TEST_F(Memory, ArraysByTheDriversRequirement) {
  CUDA_ARRAY_DESCRIPTOR large{4096, 1024, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr, refused = nullptr;
  ASSERT_EQ(cuArrayCreate_v2(&array, &large), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kArray), 16 * kMiB);
  SetLimit(0, LedgerBytes(0) + kMiB);
  EXPECT_EQ(cuArrayCreate_v2(&refused, &large), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused, nullptr);
  Same();
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  Same();
}

TEST_F(Memory, SmallArraysShareBlocks) {
  CUDA_ARRAY_DESCRIPTOR small{128, 128, CU_AD_FORMAT_FLOAT, 1};  // 64 KiB
  std::vector<CUarray> arrays(33);
  for (CUarray& array : arrays) ASSERT_EQ(cuArrayCreate_v2(&array, &small), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kArray), 4 * kMiB);
  for (CUarray array : arrays) ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kArray), 0u);
}

TEST_F(Memory, ExternalMemoryIsChargedToItsImporterOnce) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC d{};
  d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  d.size = 12 * kMiB;
  CUexternalMemory m = nullptr, n = nullptr;
  ASSERT_EQ(cuImportExternalMemory(&m, &d), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kImported), 12 * kMiB);
  SetLimit(0, LedgerBytes(0));
  EXPECT_EQ(cuImportExternalMemory(&n, &d), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuDestroyExternalMemory(m), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kImported), 0u);
}

TEST_F(Memory, InfoAndTotalShowTheSlice) {
  SetLimit(0, 1000 * kMiB);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 1000 * kMiB);
  EXPECT_EQ(free, 1000 * kMiB - base_);
  ASSERT_EQ(cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, 1000 * kMiB);
  EXPECT_EQ(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
  SetLimit(0, std::uint64_t{64} << 30);
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, (std::uint64_t{64} << 30) - DriverBytes(0)) << "never more than the card has";
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

TEST_F(Memory, AForkedChildHasASlotOfItsOwnThatGoesWithIt) {
  const std::uint64_t before = LedgerBytes(0);
  const contract::LedgerSlot* mine = OwnSlotOrNull();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    CUcontext context = nullptr;
    CUdeviceptr p = 0;
    char c = 0;
    bool ok = cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_SUCCESS;
    ok = ok && cuMemAlloc_v2(&p, 50 * kMiB) == CUDA_SUCCESS && OwnSlotOrNull() != mine;
    ok = ok && write(ready[1], ok ? "y" : "n", 1) == 1 && read(done[0], &c, 1) == 1;
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
