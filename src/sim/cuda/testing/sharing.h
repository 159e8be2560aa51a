// A fixture for tests of the built driver that count what the card is charged.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {

inline constexpr std::uint64_t kMiB = 1 << 20, kBlock = 2 * kMiB;

class Sharing : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    base_ = UsedOnCard(0);
  }
  void TearDown() override {
    CU(cuCtxSetCurrent)(nullptr);
    EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  }
  std::uint64_t Charged() const { return UsedOnCard(0) - base_; }
  static CUmemAllocationProp OnDevice(int device, bool shareable = false) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }
  static CUmemGenericAllocationHandle Create(std::size_t bytes, bool shareable = false) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = OnDevice(0, shareable);
    EXPECT_EQ(CU(cuMemCreate)(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUdeviceptr Reserve(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CU(cuMemAddressReserve)(&pointer, bytes, 0, 0, 0), CUDA_SUCCESS);
    return pointer;
  }
  static CUresult Open(CUdeviceptr pointer, std::size_t bytes,
                       CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                       int device = 0) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return CU(cuMemSetAccess)(pointer, bytes, &access, 1);
  }
  CUcontext context_{};
  std::uint64_t base_ = 0;
};

}  // namespace tessera::sim
