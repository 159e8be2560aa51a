// Memory of cuMemCreate is charged as long as the driver holds it, whatever holds it there.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "memory/testing/fake_driver.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::After;
using testing::Call;
using testing::DriverBytes;
using testing::Held;
using testing::kMiB;
using testing::LedgerBytes;

constexpr std::uint64_t kBytes = 16 * kMiB;
constexpr CUdeviceptr kAddress = 0x7100000000;

class PhysicalMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::Install();
    testing::SetLimit(0, std::uint64_t{10} << 30);
    ASSERT_EQ(cuCtxCreate_v4(&context_, nullptr, 0, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    testing::TellOwnBytes(false);
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), 0u);
  }
  void Holds(std::uint64_t bytes) {
    EXPECT_EQ(Held(0, Kind::kVmm), bytes);
    EXPECT_EQ(LedgerBytes(0), DriverBytes(0));
  }
  static CUmemGenericAllocationHandle Create() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, kBytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUarray SparseArray() {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    descriptor.Flags = CUDA_ARRAY3D_SPARSE;
    CUarray array = nullptr;
    EXPECT_EQ(cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS);
    return array;
  }
  static CUresult Tile(CUarray array, unsigned x, CUmemOperationType operation,
                       CUmemGenericAllocationHandle handle) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.offsetX = x;
    info.memOperationType = operation;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = handle;
    return cuMemMapArrayAsync(&info, 1, nullptr);
  }
  static void OtherThread(const std::function<void()>& what) { std::thread(what).join(); }

  CUcontext context_ = nullptr;
};

TEST_F(PhysicalMemory, TilesOfAnArrayHoldItUntilTheStreamHasUndoneThem) {
  const CUarray array = SparseArray();
  const CUmemGenericAllocationHandle handle = Create();
  ASSERT_EQ(Tile(array, 0, CU_MEM_OPERATION_TYPE_MAP, handle), CUDA_SUCCESS);
  ASSERT_EQ(Tile(array, 64, CU_MEM_OPERATION_TYPE_MAP, handle), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(Tile(array, 0, CU_MEM_OPERATION_TYPE_UNMAP, 0), CUDA_SUCCESS);
  ASSERT_EQ(Tile(array, 64, CU_MEM_OPERATION_TYPE_UNMAP, 0), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  Holds(0);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(PhysicalMemory, AnArraysTilesEndWithItAndWithItsContext) {
  CUarray array = SparseArray();
  const CUmemGenericAllocationHandle handle = Create();
  ASSERT_EQ(Tile(array, 0, CU_MEM_OPERATION_TYPE_MAP, handle), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  Holds(0);
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v4(&other, nullptr, 0, 0), CUDA_SUCCESS);
  array = SparseArray();
  const CUmemGenericAllocationHandle second = Create();
  ASSERT_EQ(Tile(array, 0, CU_MEM_OPERATION_TYPE_MAP, second), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  Holds(0);
  real::cuCtxSetCurrent(context_);
}

TEST_F(PhysicalMemory, MulticastObjectsHoldWhatIsBoundToThem) {
  CUmulticastObjectProp properties{};
  CUmemGenericAllocationHandle object = 0;
  ASSERT_EQ(cuMulticastCreate(&object, &properties), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle first = Create(), second = Create();
  ASSERT_EQ(cuMulticastBindMem(object, 0, first, 0, kBytes, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMulticastBindMem(object, kBytes, second, 0, kBytes, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  Holds(2 * kBytes);
  ASSERT_EQ(cuMulticastUnbind(object, 0, 0, kBytes), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuMemRelease(object), CUDA_SUCCESS);
  Holds(0);
}

TEST_F(PhysicalMemory, WhatWasExportedStaysChargedUntilTheDriverSaysThatItIsGone) {
  testing::TellOwnBytes(true);
  const CUmemGenericAllocationHandle handle = Create();
  int descriptor = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  Holds(kBytes);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(real::cuMemImportFromShareableHandle(
                &again, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  testing::CloseExport(descriptor);
  ASSERT_EQ(cuMemMap(kAddress, kBytes, 0, again, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuMemUnmap(kAddress, kBytes), CUDA_SUCCESS);
  Holds(0);
}

TEST_F(PhysicalMemory, WithoutAFigureOfTheDriverAnExportStaysCharged) {
  const CUmemGenericAllocationHandle handle = Create();
  int descriptor = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  Holds(kBytes);
  testing::CloseExport(descriptor);
  EXPECT_EQ(Held(0, Kind::kVmm), kBytes);
  testing::TellOwnBytes(true);
  ASSERT_EQ(cuMemRelease(Create()), CUDA_SUCCESS);  // asks again
  Holds(0);
}

TEST_F(PhysicalMemory, AHandleThatAnotherThreadReleasesDuringTheMapLeavesTheMapping) {
  const CUmemGenericAllocationHandle handle = Create();
  After(Call::kMap, [&] { OtherThread([&] { cuMemRelease(handle); }); });
  ASSERT_EQ(cuMemMap(kAddress, kBytes, 0, handle, 0), CUDA_SUCCESS);
  Holds(kBytes);
  ASSERT_EQ(cuMemUnmap(kAddress, kBytes), CUDA_SUCCESS);
  Holds(0);
}

TEST_F(PhysicalMemory, AMappingThatAnotherThreadMakesWhereOneWasUndoneCounts) {
  const CUmemGenericAllocationHandle first = Create(), second = Create();
  ASSERT_EQ(cuMemMap(kAddress, kBytes, 0, first, 0), CUDA_SUCCESS);
  After(Call::kUnmap, [&] {
    OtherThread([&] {
      EXPECT_EQ(cuMemMap(kAddress, kBytes, 0, second, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuMemRelease(second), CUDA_SUCCESS);
    });
  });
  ASSERT_EQ(cuMemUnmap(kAddress, kBytes), CUDA_SUCCESS);
  Holds(2 * kBytes);
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  Holds(kBytes);
  EXPECT_EQ(cuMemUnmap(kAddress + kBytes, kBytes), CUDA_ERROR_INVALID_VALUE);
  Holds(kBytes);
  ASSERT_EQ(cuMemUnmap(kAddress, kBytes), CUDA_SUCCESS);
  Holds(0);
}

}  // namespace
}  // namespace tessera::fence
