// Many threads on one context: nothing is lost, whatever they do to each other's handles.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

constexpr int kThreads = 6, kRounds = 400;
constexpr std::size_t kBlock = 2 << 20;

void Work(CUcontext context, int seed, std::atomic<int>* wrong) {
  const auto expect = [&](bool good) { *wrong += !good; };
  std::mt19937 random(static_cast<unsigned>(seed));
  expect(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  std::vector<unsigned char> bytes(70'000), back(70'000);
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t size = 1 + random() % bytes.size();
    std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(seed * 31 + round));
    CUdeviceptr pointer = 0, pooled = 0, place = 0;
    expect(CU(cuMemAlloc_v2)(&pointer, size) == CUDA_SUCCESS);
    expect(CU(cuMemcpyHtoD_v2)(pointer, bytes.data(), size) == CUDA_SUCCESS);
    expect(CU(cuMemAllocAsync)(&pooled, size, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    expect(CU(cuMemcpyDtoDAsync_v2)(pooled, pointer, size, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    expect(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    expect(CU(cuMemcpyDtoH_v2)(back.data(), pooled, size) == CUDA_SUCCESS);
    expect(
        std::equal(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin()));
    if (round % 8 == 0) {
      CUmemAllocationProp properties{};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CUmemGenericAllocationHandle handle = 0;
      const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      expect(CU(cuMemAddressReserve)(&place, 2 * kBlock, 0, 0, 0) == CUDA_SUCCESS);
      expect(CU(cuMemCreate)(&handle, kBlock, &properties, 0) == CUDA_SUCCESS);
      expect(CU(cuMemMap)(place, kBlock, 0, handle, 0) == CUDA_SUCCESS);
      expect(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
      expect(CU(cuMemSetAccess)(place, kBlock, &access, 1) == CUDA_SUCCESS);
      expect(CU(cuMemsetD8_v2)(place, 1, size) == CUDA_SUCCESS);
      expect(CU(cuMemUnmap)(place, kBlock) == CUDA_SUCCESS);
      expect(CU(cuMemAddressFree)(place, 2 * kBlock) == CUDA_SUCCESS);
    }
    // Handles that nobody gave out.
    expect(CU(cuMemRelease)(random()) != CUDA_SUCCESS);
    expect(CU(cuStreamSynchronize)(reinterpret_cast<CUstream>(
               static_cast<std::uintptr_t>(random() | 8u))) != CUDA_SUCCESS);
    expect(CU(cuArrayDestroy)(reinterpret_cast<CUarray>(static_cast<std::uintptr_t>(random()))) !=
           CUDA_SUCCESS);
    expect(CU(cuMemFreeAsync)(pooled, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    expect(CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS);
  }
}

TEST(Threads, LoseNothing) {
  ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
  const std::uint64_t before = UsedOnCard(0);
  CUcontext context{};
  ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Work, context, i, &wrong);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(UsedOnCard(0), before);
}

}  // namespace
}  // namespace tessera::sim
