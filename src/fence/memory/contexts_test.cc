// Contexts and what lives in them: code, device heaps.
#include <gtest/gtest.h>

#include <vector>

#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using testing::kContextBytes;
using testing::kMiB;
using testing::LedgerBytes;
using testing::SetLimit;

using Memory = testing::MemoryFixture;

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

TEST_F(Memory, AGreenContextIsChargedForThePrimaryOneThatItMakes) {
  for (const int current : {-1, 0, 1}) {
    if (current < 0) real::cuCtxSetCurrent(nullptr);
    if (current >= 0) OnCard(current);
    CUgreenCtx green = nullptr;
    ASSERT_EQ(cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes) << current;
    Same();
    ASSERT_EQ(cuGreenCtxDestroy(green), CUDA_SUCCESS);
    EXPECT_EQ(LedgerBytes(0), base_) << current;
    testing::FailNext(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    EXPECT_EQ(cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    EXPECT_EQ(LedgerBytes(0), base_) << current;
    Same();
  }
  SetLimit(0, base_ + kContextBytes - 1);
  CUgreenCtx refused = nullptr;
  EXPECT_EQ(cuGreenCtxCreate(&refused, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused, nullptr);
  Same();
  OnCard(0);
}

TEST_F(Memory, ManagedVariablesWithoutAContextAreChargedForThePrimaryOneThatTheyMake) {
  real::cuCtxSetCurrent(nullptr);
  CUlibrary library = nullptr;
  CUdeviceptr pointer = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cuLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  SetLimit(0, base_ + kContextBytes - 1);
  EXPECT_EQ(cuLibraryGetManaged(&pointer, &bytes, library, "m"), CUDA_ERROR_OUT_OF_MEMORY);
  Same();
  SetLimit(0, base_ + kContextBytes);
  ASSERT_EQ(cuLibraryGetManaged(&pointer, &bytes, library, "m"), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + kContextBytes);
  Same();
  ASSERT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
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

}  // namespace
}  // namespace tessera::fence
