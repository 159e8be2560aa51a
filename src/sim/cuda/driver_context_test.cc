#include <gtest/gtest.h>

#include <thread>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

class Contexts : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    context_bytes_ = RoundedUp(TestNode().specs[0].context_bytes);
    before_ = UsedOnCard(0);
  }
  static std::uint64_t RoundedUp(std::uint64_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }
  std::uint64_t context_bytes_ = 0, before_ = 0;
};

TEST_F(Contexts, CostTheirCard) {
  CUcontext a{}, b{};
  ASSERT_EQ(CU(cuCtxCreate_v2)(&a, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_ + context_bytes_);
  ASSERT_EQ(CU(cuCtxCreate_v4)(&b, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_ + 2 * context_bytes_);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(b), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(b), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(a), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_);
}

TEST_F(Contexts, TakeTheirMemoryWithThem) {
  CUcontext context{};
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  CUdeviceptr small = 0, large = 0, managed = 0;
  CUarray array{};
  const CUDA_ARRAY_DESCRIPTOR shape{1024, 1024, CU_AD_FORMAT_FLOAT, 4};
  EXPECT_EQ(CU(cuMemAlloc_v2)(&small, 100), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&large, 10 << 20), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocManaged)(&managed, 10 << 20, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuArrayCreate_v2)(&array, &shape), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_ + context_bytes_ + (2 + 10 + 10 + 16) * (1 << 20));
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_);
}

TEST_F(Contexts, StackPerThread) {
  CUcontext a{}, b{}, current{};
  ASSERT_EQ(CU(cuCtxCreate_v2)(&a, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCtxCreate_v2)(&b, 0, 1), CUDA_SUCCESS);
  CU(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, b);
  std::thread([] {
    CUcontext none = reinterpret_cast<CUcontext>(1);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CU(cuCtxGetCurrent)(&none), CUDA_SUCCESS);
    EXPECT_EQ(none, nullptr);
    EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CU(cuCtxPopCurrent_v2)(&none), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  CUdevice device = -1;
  EXPECT_EQ(CU(cuCtxGetDevice)(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(CU(cuCtxPopCurrent_v2)(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, b);
  CU(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, a);
  EXPECT_EQ(CU(cuCtxPushCurrent_v2)(b), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSetCurrent)(a), CUDA_SUCCESS);  // replaces the top
  EXPECT_EQ(CU(cuCtxPopCurrent_v2)(&current), CUDA_SUCCESS);
  CU(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, a);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(b), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxPushCurrent_v2)(b), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(a), CUDA_SUCCESS);
  CU(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, nullptr);
}

TEST_F(Contexts, DestroyedElsewhereIsNoticed) {
  CUcontext context{};
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  std::thread([&] { EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS); }).join();
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext popped{};
  EXPECT_EQ(CU(cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
}

TEST_F(Contexts, PrimaryIsCounted) {
  CUcontext first{}, second{};
  unsigned flags = 0;
  int active = -1;
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&second, 0), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(UsedOnCard(0), before_ + context_bytes_);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_ + context_bytes_);
  EXPECT_EQ(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRelease)(0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&second, 0), CUDA_SUCCESS);
  EXPECT_EQ(first, second);  // the same handle again
  EXPECT_EQ(CU(cuCtxDestroy_v2)(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_);
}

TEST_F(Contexts, BadHandlesAreRefused) {
  const auto wild = reinterpret_cast<CUcontext>(0xDEADBEEFu);
  const auto low = reinterpret_cast<CUcontext>(3);
  for (CUcontext bad : {wild, low, reinterpret_cast<CUcontext>(~0ull)}) {
    unsigned long long id = 0;
    unsigned version = 0;
    EXPECT_EQ(CU(cuCtxSetCurrent)(bad), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CU(cuCtxPushCurrent_v2)(bad), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CU(cuCtxDestroy_v2)(bad), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_NE(CU(cuCtxGetId)(bad, &id), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuCtxGetApiVersion)(bad, &version), CUDA_ERROR_INVALID_CONTEXT);
  }
  CUcontext context{};
  EXPECT_EQ(CU(cuCtxCreate_v2)(&context, 0x8000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuCtxCreate_v2)(&context, 0, 9), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CU(cuCtxCreate_v2)(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Contexts, KeepTheirSettings) {
  TestContext context;
  std::size_t value = 0;
  for (int limit = 0; limit < CU_LIMIT_MAX; ++limit)
    EXPECT_EQ(CU(cuCtxGetLimit)(&value, static_cast<CUlimit>(limit)), CUDA_SUCCESS) << limit;
  EXPECT_EQ(CU(cuCtxGetLimit)(&value, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
  EXPECT_EQ(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(value, 4096u);
  unsigned long long id = 0;
  EXPECT_EQ(CU(cuCtxGetId)(nullptr, &id), CUDA_SUCCESS);
  EXPECT_NE(id, 0u);
}

TEST_F(Contexts, PeersNeedALink) {
  TestContext own(0);
  CUcontext near{}, far{};
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&near, 1), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&far, 2), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(near, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(near, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(far, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(CU(cuCtxDisablePeerAccess)(near), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxDisablePeerAccess)(near), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  CU(cuDevicePrimaryCtxRelease_v2)(1);
  CU(cuDevicePrimaryCtxRelease_v2)(2);
}

// An error that poisons a context is answered by every call until the context is gone.
TEST_F(Contexts, StickyErrorsStick) {
  CUcontext context{};
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  ASSERT_GE(AddFault("cuMemAlloc_v2", -1, CUDA_ERROR_ILLEGAL_ADDRESS, 0, 1000, 0, 1), 0);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before_);
}

TEST_F(Contexts, ALostCardRefusesWork) {
  TestContext context(1);
  TestNode().cards[1].lost = 1;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
  TestNode().cards[1].lost = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::sim
