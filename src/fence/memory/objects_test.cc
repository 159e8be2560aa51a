// What has a handle: memory of cuMemCreate, arrays, external memory.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::Held;
using testing::kMiB;
using testing::kRoom;
using testing::LedgerBytes;
using testing::OnDevice;
using testing::SetLimit;

using Memory = testing::MemoryFixture;

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

}  // namespace
}  // namespace tessera::fence
