// What is charged by measurement stays charged whatever part of managed or imported memory the
// driver's figure holds.
#include "memory/floating.h"

#include <gtest/gtest.h>

#include "memory/own_usage.h"
#include "memory/testing/own_usage_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::DriverBytes;
using testing::Held;
using testing::kContextBytes;
using testing::kImageOf12MiB;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;
using testing::SetResident;

constexpr std::uint64_t kCode = 14 * kMiB;

class Floating : public testing::OwnUsageFixture {
 protected:
  static CUdeviceptr Managed(std::uint64_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    return pointer;
  }
  static CUmodule Load(const char* image) {
    CUmodule module = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, image), CUDA_SUCCESS);
    return module;
  }
};

TEST_F(Floating, AModuleIsChargedThoughManagedMemoryIsNotOnTheCard) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  for (const char* image : {kImageOf12MiB, "small text"}) {
    const CUdeviceptr pointer = Managed(640 * kMiB);
    const CUmodule module = Load(image);
    EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode) << image;
    EXPECT_EQ(SettleOwn(testing::SliceCard(0)), Settled::kBetween);
    EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode) << image;
    EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_);
  }
}

// Managed memory may be all of the slice and more than the card's free memory: whatever part of it
// is on the card, it is neither taken for code nor is code taken for it.
TEST_F(Floating, PagesThatComeAndGoChangeNoCharge) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  SetLimit(0, base_ + 640 * kMiB + kCode);
  const CUdeviceptr pointer = Managed(640 * kMiB);
  const CUmodule module = Load("small text");
  for (const std::uint64_t resident : {600 * kMiB, 0 * kMiB, 640 * kMiB, 30 * kMiB}) {
    SetResident(pointer, resident);
    EXPECT_NE(SettleOwn(testing::SliceCard(0)), Settled::kLater);
    EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode) << resident / kMiB;
    EXPECT_EQ(Held(0, Kind::kManaged), 640 * kMiB);
  }
  CUmodule refused = nullptr;
  EXPECT_EQ(cuModuleLoadData(&refused, "small text"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Floating, AModuleThatWasLoadedWithPagesOnTheCardIsChargedOnce) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  const CUdeviceptr pointer = Managed(200 * kMiB);
  SetResident(pointer, 150 * kMiB);
  const CUmodule module = Load("small text");
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode);
  // Repeated, nothing adds up.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(cuModuleUnload(Load("small text")), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

// Pages that leave while code is loaded hide it: no more than the blocks that it may share is given
// back of what its image says.
TEST_F(Floating, PagesThatLeaveDuringALoadTakeNoChargeWithThem) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  const CUdeviceptr pointer = Managed(200 * kMiB);
  SetResident(pointer, 150 * kMiB);
  testing::ResidentInNextLoad(pointer, 50 * kMiB);
  const CUmodule module = Load(kImageOf12MiB);
  EXPECT_GE(Held(0, Kind::kContext), kContextBytes + kCode - 4 * kMiB);
  EXPECT_LE(Held(0, Kind::kContext), kContextBytes + kCode);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_NE(SettleOwn(testing::SliceCard(0)), Settled::kLater);
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0)) << "exact again without them";
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Floating, AloneFreeMemoryOfTheCardIsNotTakenForLessCode) {
  const CUdeviceptr pointer = Managed(200 * kMiB);
  SetResident(pointer, 150 * kMiB);
  testing::ResidentInNextLoad(pointer, 120 * kMiB);
  const CUmodule module = Load(kImageOf12MiB);
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode) << "what the image says";
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Floating, ImportedMemoryThatTheFigureLacksTakesNoChargeWithIt) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC d{};
  d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  d.size = 120 * kMiB;
  CUexternalMemory memory = nullptr;
  ASSERT_EQ(cuImportExternalMemory(&memory, &d), CUDA_SUCCESS);
  const CUmodule module = Load("small text");
  EXPECT_EQ(Held(0, Kind::kImported), 120 * kMiB);
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode);
  EXPECT_EQ(cuDestroyExternalMemory(memory), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_);
}

TEST_F(Floating, AManagedPoolIsChargedWhereverItPrefersToBe) {
  testing::TellOwnBytes(true);
  const Neighbour neighbour;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  props.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&pointer, 80 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 80 * kMiB);
  EXPECT_EQ(FloatingBytes(testing::SliceCard(0)), 80 * kMiB);
  const CUmodule module = Load("small text");
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes + kCode);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(pointer, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
}

// Exported memory is given back only where the figure leaves no doubt.
TEST_F(Floating, ManagedMemoryThatIsElsewhereDoesNotEndAnExport) {
  testing::TellOwnBytes(true);
  const CUdeviceptr pointer = Managed(200 * kMiB);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, 16 * kMiB, &prop, 0), CUDA_SUCCESS);
  int descriptor = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kVmm), 16 * kMiB) << "the descriptor holds it";
  testing::CloseExport(descriptor);
  EXPECT_EQ(SettleOwn(testing::SliceCard(0)), Settled::kBetween);
  EXPECT_EQ(Held(0, Kind::kContext), kContextBytes);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(SettleOwn(testing::SliceCard(0)), Settled::kExact);
  EXPECT_EQ(Held(0, Kind::kVmm), 0u);
}

}  // namespace
}  // namespace tessera::fence
