// What the fence decides by, changed by another thread before the driver looks at it.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/interleaving_fixture.h"
#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using contract::Kind;
using testing::Before;
using testing::Call;
using testing::Held;
using testing::kMiB;
using testing::LedgerBytes;
using testing::OnDevice;

using Interleaving = testing::InterleavingFixture;

TEST_F(Interleaving, AllocationsComeFromThePoolThatIsCharged) {
  const CUmemoryPool charged = NewPool(), other = NewPool();
  ASSERT_EQ(real::cuDeviceSetMemPool(0, charged), CUDA_SUCCESS);
  Before(Call::kPoolAlloc, [&] { real::cuDeviceSetMemPool(0, other); });
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 20 * kMiB, nullptr), CUDA_SUCCESS);
  cuuint64_t reserved = 1;
  ASSERT_EQ(real::cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved),
            CUDA_SUCCESS);
  EXPECT_EQ(reserved, 0u);
  EXPECT_EQ(Held(0, Kind::kPool), 20 * kMiB);
  Same();
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  for (const CUmemoryPool pool : {charged, other}) ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(Interleaving, PhysicalMemoryIsOfTheDescriptionThatWasCharged) {
  CUmemAllocationProp prop = OnDevice(0);
  Before(Call::kMemCreate, [&] { prop.location.id = 1; });
  CUmemGenericAllocationHandle h = 0;
  ASSERT_EQ(cuMemCreate(&h, 16 * kMiB, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(prop.location.id, 1);
  Same();
  ASSERT_EQ(cuMemRelease(h), CUDA_SUCCESS);
}

TEST_F(Interleaving, ArraysAreOfTheDescriptionThatWasCharged) {
  CUDA_ARRAY_DESCRIPTOR descriptor{1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  testing::SetLimit(0, base_ + 4 * kMiB);
  Before(Call::kCreateArray, [&] { descriptor.Height = 8192; });
  CUarray array = nullptr;
  ASSERT_EQ(cuArrayCreate_v2(&array, &descriptor), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + 4 * kMiB);
  Same();
  ASSERT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(Interleaving, PoolsAreOfTheDescriptionThatIsNoted) {
  CUmemPoolProps props{};
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemoryPool pool = nullptr;
  testing::After(Call::kPoolCreate, [&] { props.location.type = CU_MEM_LOCATION_TYPE_HOST; });
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 20 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 20 * kMiB);
  Same();
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(Interleaving, AnAllocationThatACaptureMissesIsCharged) {
  testing::SayCapturing(true);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAllocAsync(&p, 20 * kMiB, nullptr), CUDA_SUCCESS);
  testing::SayCapturing(false);
  EXPECT_EQ(Held(0, Kind::kPool), 20 * kMiB);
  Same();
  ASSERT_EQ(cuMemFreeAsync(p, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Held(0, Kind::kPool), 0u);
}

}  // namespace
}  // namespace tessera::fence
