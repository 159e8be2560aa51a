#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxCreate_v2)(&context_, 0, 0), CUDA_SUCCESS);
    base_ = UsedOnCard(0);
  }
  void TearDown() override { EXPECT_EQ(CU(cuCtxDestroy_v2)(context_), CUDA_SUCCESS); }
  std::uint64_t Charged() const { return UsedOnCard(0) - base_; }
  CUdeviceptr Alloc(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
  }
  static CUresult Free(CUdeviceptr pointer) { return CU(cuMemFree_v2)(pointer); }

  CUcontext context_{};
  std::uint64_t base_ = 0;
};

TEST_F(Memory, SmallOnesShareABlock) {
  const CUdeviceptr a = Alloc(1), b = Alloc(kMiB);
  EXPECT_EQ(Charged(), 2 * kMiB);
  EXPECT_EQ(a % 512, 0u);
  const CUdeviceptr c = Alloc(kMiB);  // does not fit beside the others
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(Free(b), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(Free(a), CUDA_SUCCESS);  // the last of its block
  EXPECT_EQ(Charged(), 2 * kMiB);
  EXPECT_EQ(Free(c), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Memory, LargeOnesTakeWholeBlocks) {
  const CUdeviceptr a = Alloc(kMiB + 1), b = Alloc(5 * kMiB);
  EXPECT_EQ(Charged(), 8 * kMiB);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_EQ(CU(cuMemGetAddressRange_v2)(&base, &size, b + 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(base, b);
  EXPECT_EQ(size, 5 * kMiB);
  EXPECT_EQ(CU(cuMemGetAddressRange_v2)(&base, &size, b + 5 * kMiB), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Free(a), CUDA_SUCCESS);
  EXPECT_EQ(Free(b), CUDA_SUCCESS);
}

TEST_F(Memory, BadFreesAreRefused) {
  const CUdeviceptr small = Alloc(100), large = Alloc(4 * kMiB);
  EXPECT_EQ(Free(small + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(large + 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(12345), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(small), CUDA_SUCCESS);
  EXPECT_EQ(Free(small), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(large), CUDA_SUCCESS);
  EXPECT_EQ(Free(large), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(0), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAlloc_v2)(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, EndsExactlyAtTheCard) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, TestNode().specs[0].memory_bytes);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, free + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, ~std::size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Charged(), 0u);
  const CUdeviceptr all = Alloc(free);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(Free(all), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Memory, NewMemoryIsZero) {
  std::vector<unsigned char> bytes(3 * kMiB);
  for (std::size_t size : {std::size_t{700}, std::size_t{300 * 1024}, std::size_t{3 * kMiB}}) {
    const CUdeviceptr first = Alloc(size);
    EXPECT_EQ(CU(cuMemsetD8_v2)(first, 0xAB, size), CUDA_SUCCESS);
    EXPECT_EQ(Free(first), CUDA_SUCCESS);
    const CUdeviceptr again = Alloc(size);
    EXPECT_EQ(CU(cuMemcpyDtoH_v2)(bytes.data(), again, size), CUDA_SUCCESS);
    EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size), 0),
              static_cast<std::ptrdiff_t>(size))
        << size;
    EXPECT_EQ(Free(again), CUDA_SUCCESS);
  }
}

TEST_F(Memory, CopiesMoveBytesAndStayInside) {
  std::vector<unsigned char> in(100'000), out(100'000);
  std::iota(in.begin(), in.end(), 0);
  const CUdeviceptr a = Alloc(in.size()), b = Alloc(in.size());
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(a, in.data(), in.size()), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoD_v2)(b, a, in.size()), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(out.data(), b, out.size()), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
  std::fill(out.begin(), out.end(), 0);
  EXPECT_EQ(CU(cuMemcpy)(reinterpret_cast<CUdeviceptr>(out.data()), b + 1, out.size() - 1),
            CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(out.data(), in.data() + 1, in.size() - 1), 0);
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(a + 1, in.data(), in.size()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(out.data(), 0x1000, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD8_v2)(a, 1, in.size() + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD32_v2)(a + 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(a, in.data(), 0), CUDA_SUCCESS);
  EXPECT_EQ(Free(a), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(out.data(), a, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(b), CUDA_SUCCESS);
}

TEST_F(Memory, RowsAndBoxes) {
  CUdeviceptr device = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(CU(cuMemAllocPitch_v2)(&device, &pitch, 100, 50, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 512u);
  EXPECT_EQ(CU(cuMemAllocPitch_v2)(&device, &pitch, 100, 50, 3), CUDA_ERROR_INVALID_VALUE);
  std::vector<unsigned char> in(100 * 50), out(100 * 50);
  std::iota(in.begin(), in.end(), 0);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 100;
  copy.Height = 50;
  EXPECT_EQ(CU(cuMemcpy2D_v2)(&copy), CUDA_SUCCESS);
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = device;
  back.srcPitch = pitch;
  back.srcHeight = 10;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out.data();
  back.dstPitch = 100;
  back.dstHeight = 10;
  back.WidthInBytes = 100;
  back.Height = 10;
  back.Depth = 5;
  EXPECT_EQ(CU(cuMemcpy3D_v2)(&back), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
  EXPECT_EQ(CU(cuMemsetD2D32_v2)(device, pitch, 0x01020304, 2, 3), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(out.data(), device + 2 * pitch, 12), CUDA_SUCCESS);
  const unsigned char wanted[12] = {4, 3, 2, 1, 4, 3, 2, 1, in[208], in[209], in[210], in[211]};
  EXPECT_EQ(std::memcmp(out.data(), wanted, 12), 0);
  back.srcHeight = 9;
  EXPECT_EQ(CU(cuMemcpy3D_v2)(&back), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(device), CUDA_SUCCESS);
}

TEST_F(Memory, ArraysAreCharged) {
  CUarray array{};
  const CUDA_ARRAY3D_DESCRIPTOR shape{256, 64, 8, CU_AD_FORMAT_FLOAT, 2, CUDA_ARRAY3D_SURFACE_LDST};
  ASSERT_EQ(CU(cuArray3DCreate_v2)(&array, &shape), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 2 * kMiB);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  EXPECT_EQ(CU(cuArrayGetMemoryRequirements)(&needs, array, 0), CUDA_SUCCESS);
  EXPECT_EQ(needs.size, 256u * 8 * 64 * 8);
  CUDA_ARRAY3D_DESCRIPTOR got{};
  EXPECT_EQ(CU(cuArray3DGetDescriptor_v2)(&got, array), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&got, &shape, sizeof got), 0);
  std::vector<float> in(256 * 2), out(256 * 2);
  std::iota(in.begin(), in.end(), 0.f);
  EXPECT_EQ(CU(cuMemcpyHtoA_v2)(array, 2048 * 3, in.data(), 2048), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyAtoH_v2)(out.data(), array, 2048 * 3, 2048), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
  EXPECT_EQ(CU(cuMemcpyHtoA_v2)(array, 100, in.data(), 2048), CUDA_ERROR_INVALID_VALUE);
  CUsurfObject surface = 0;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  EXPECT_EQ(CU(cuSurfObjectCreate)(&surface, &resource), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource_back{};
  EXPECT_EQ(CU(cuSurfObjectGetResourceDesc)(&resource_back, surface), CUDA_SUCCESS);
  EXPECT_EQ(resource_back.res.array.hArray, array);
  EXPECT_EQ(CU(cuSurfObjectDestroy)(surface), CUDA_SUCCESS);
  EXPECT_NE(CU(cuSurfObjectDestroy)(surface), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuArrayDestroy)(array), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuArrayDestroy)(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Charged(), 0u);

  CUmipmappedArray mipmap{};
  ASSERT_EQ(CU(cuMipmappedArrayCreate)(&mipmap, &shape, 99), CUDA_SUCCESS);
  CUarray level{};
  EXPECT_EQ(CU(cuMipmappedArrayGetLevel)(&level, mipmap, 8),
            CUDA_SUCCESS);  // 256 -> 1: nine levels
  EXPECT_EQ(CU(cuArray3DGetDescriptor_v2)(&got, level), CUDA_SUCCESS);
  EXPECT_EQ(got.Width, 1u);
  EXPECT_EQ(CU(cuMipmappedArrayGetLevel)(&level, mipmap, 9), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuArrayDestroy)(level), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_GT(Charged(), 0u);
  EXPECT_EQ(CU(cuMipmappedArrayDestroy)(mipmap), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Memory, HostMemory) {
  void* pinned = nullptr;
  unsigned flags = 0;
  CUdeviceptr device = 0;
  ASSERT_EQ(CU(cuMemHostAlloc)(&pinned, 5000, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemHostGetFlags)(&flags, pinned), CUDA_SUCCESS);
  EXPECT_TRUE(flags & CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(CU(cuMemHostGetDevicePointer_v2)(&device, pinned, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pinned));
  EXPECT_EQ(CU(cuMemHostRegister_v2)(pinned, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(CU(cuMemHostUnregister)(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(CU(cuMemFreeHost)(static_cast<char*>(pinned) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFreeHost)(pinned), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeHost)(pinned), CUDA_ERROR_INVALID_VALUE);
  std::vector<char> own(100'000);
  EXPECT_EQ(CU(cuMemHostRegister_v2)(own.data(), own.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemHostRegister_v2)(own.data() + 10, 10, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(CU(cuMemFreeHost)(own.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemHostUnregister)(own.data()), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemHostRegister_v2)(reinterpret_cast<void*>(0x1000), 10, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Memory, PointerAttributes) {
  const CUdeviceptr device = Alloc(1000);
  int host_variable = 0;
  unsigned type = 0;
  int ordinal = -9;
  CUcontext context{};
  int managed = -1;
  unsigned long long id = 0, other = 0;
  EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 5),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(CU(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, device),
            CUDA_SUCCESS);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device),
            CUDA_SUCCESS);
  EXPECT_EQ(managed, 0);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, device), CUDA_SUCCESS);
  const CUdeviceptr second = Alloc(1000);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, second),
            CUDA_SUCCESS);
  EXPECT_NE(id, other);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      reinterpret_cast<CUdeviceptr>(&host_variable)),
            CUDA_ERROR_INVALID_VALUE);
  // The plural form answers zeros, and no device, for memory that it does not know.
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_CONTEXT};
  void* data[] = {&type, &ordinal, &context};
  EXPECT_EQ(CU(cuPointerGetAttributes)(3, attributes, data,
                                       reinterpret_cast<CUdeviceptr>(&host_variable)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, -2);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(Free(device), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Free(second), CUDA_SUCCESS);
}

TEST_F(Memory, ManagedKeepsHints) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(CU(cuMemAllocManaged)(&pointer, 3 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  *reinterpret_cast<int*>(pointer) = 42;  // the host may use it
  EXPECT_EQ(CU(cuMemAdvise_v2)(pointer, kMiB, CU_MEM_ADVISE_SET_READ_MOSTLY, {}), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAdvise)(pointer, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPrefetchAsync)(pointer, kMiB, CU_DEVICE_CPU, nullptr), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(
      CU(cuMemRangeGetAttribute)(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, pointer, kMiB),
      CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(CU(cuMemRangeGetAttribute)(&value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                       pointer, kMiB),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(CU(cuMemRangeGetAttribute)(&value, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                       pointer, kMiB),
            CUDA_SUCCESS);
  EXPECT_EQ(value, CU_DEVICE_CPU);
  EXPECT_EQ(CU(cuMemAdvise)(pointer, 5 * kMiB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAdvise)(pointer, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 7),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Memory, FirstAbiHas32BitPointers) {
  CUdeviceptr_v1 pointer = 0, base = 0;
  unsigned size = 0, free = 0, total = 0;
  ASSERT_EQ(CU(cuMemAlloc)(&pointer, 3 << 20), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  const char text[] = "old";
  char back[4] = {};
  EXPECT_EQ(CU(cuMemcpyHtoD)(pointer, text, 4), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH)(back, pointer, 4), CUDA_SUCCESS);
  EXPECT_STREQ(back, text);
  EXPECT_EQ(CU(cuMemGetAddressRange)(&base, &size, pointer + 1), CUDA_SUCCESS);
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 3u << 20);
  EXPECT_EQ(CU(cuMemGetInfo)(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 0xFFFFFFFFu);  // more than 32 bits can say
  EXPECT_EQ(CU(cuMemFree)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

// Against a book of its own: the charge is what the rules say, whatever the order; no allocation
// overlaps another.
TEST_F(Memory, AnyOrder) {
  std::mt19937_64 random(7);
  struct Live {
    CUdeviceptr pointer;
    std::size_t size;
    unsigned char mark;
  };
  std::vector<Live> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() > 300 || (!live.empty() && random() % 2)) {
      const std::size_t i = random() % live.size();
      unsigned char first = 0, last = 0;
      ASSERT_EQ(CU(cuMemcpyDtoH_v2)(&first, live[i].pointer, 1), CUDA_SUCCESS);
      ASSERT_EQ(CU(cuMemcpyDtoH_v2)(&last, live[i].pointer + live[i].size - 1, 1), CUDA_SUCCESS);
      ASSERT_EQ(first, live[i].mark);
      ASSERT_EQ(last, live[i].mark);
      ASSERT_EQ(Free(live[i].pointer), CUDA_SUCCESS);
      live[i] = live.back();
      live.pop_back();
      continue;
    }
    const std::size_t size = 1 + random() % (1ull << (random() % 23));
    const auto mark = static_cast<unsigned char>(1 + random() % 255);
    const CUdeviceptr pointer = Alloc(size);
    ASSERT_EQ(CU(cuMemsetD8_v2)(pointer, mark, 1), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemsetD8_v2)(pointer + size - 1, mark, 1), CUDA_SUCCESS);
    live.push_back({pointer, size, mark});
  }
  for (const Live& one : live) EXPECT_EQ(Free(one.pointer), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace tessera::sim
