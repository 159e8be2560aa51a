// Copies and fills by every form of the interface.
#include <cstring>
#include <numeric>
#include <vector>

#include "sim/cuda/testing/sim_device.h"

namespace tessera::sim::testing {
namespace {

constexpr int kWidth = 64, kHeight = 4;

class CopyTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a_, kWidth * kHeight * 4));
    OK(cuMemAlloc_v2(&b_, kWidth * kHeight * 4));
    // The old forms name memory by 32 bits.
    OK(cuMemAlloc(&low_, kWidth * kHeight));
    const CUDA_ARRAY_DESCRIPTOR shape{kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate_v2(&array_, &shape));
    OK(cuArrayCreate_v2(&other_array_, &shape));
    bytes_.resize(kWidth * kHeight);
    std::iota(bytes_.begin(), bytes_.end(), std::uint8_t{1});
    Clear();
  }
  void Clear() {
    OK(cuMemsetD8_v2(a_, 0, kWidth * kHeight * 4));
    OK(cuMemsetD8_v2(b_, 0, kWidth * kHeight * 4));
    OK(cuMemsetD8_v2(low_, 0, kWidth * kHeight));
  }
  std::vector<std::uint8_t> ReadBytes(CUdeviceptr from, std::size_t count) {
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
    std::vector<std::uint8_t> out(count);
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH_v2(out.data(), from, count));
    return out;
  }
  std::vector<std::uint8_t> First(std::size_t count) {
    return {bytes_.begin(), bytes_.begin() + count};
  }

  CUstream stream_{};
  CUdeviceptr a_ = 0, b_ = 0;
  CUdeviceptr_v1 low_ = 0;
  CUarray array_{}, other_array_{};
  std::vector<std::uint8_t> bytes_;
};

TEST_F(CopyTest, StraightOnesInEveryForm) {
  std::vector<std::uint8_t> out(100);
  OK(cuMemcpyHtoDAsync_v2(a_, bytes_.data(), 100, stream_));
  OK(cuMemcpyAsync(b_, a_, 100, stream_));
  EXPECT_EQ(First(100), ReadBytes(b_, 100));
  OK(cuMemcpyHtoD(low_, bytes_.data() + 1, 99));
  OK(cuMemcpyDtoD(low_ + 100, low_, 99));
  OK(cuMemcpyDtoH(out.data(), low_ + 100, 99));
  EXPECT_EQ(0, std::memcmp(out.data(), bytes_.data() + 1, 99));
  OK(cuMemcpyHtoDAsync(low_, bytes_.data(), 100, stream_));
  OK(cuMemcpyDtoDAsync(low_ + 100, low_, 100, stream_));
  OK(cuMemcpyDtoHAsync(out.data(), low_ + 100, 100, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(First(100), out);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a_, bytes_.data(), kWidth * kHeight * 4 + 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out.data(), low_ + (8 << 20), 100));
}

TEST_F(CopyTest, BetweenContexts) {
  CUcontext second{};
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  OK(cuCtxPushCurrent(second));
  CUdeviceptr there = 0;
  OK(cuMemAlloc_v2(&there, 256));
  OK(cuCtxPopCurrent(nullptr));
  OK(cuMemcpyHtoD_v2(a_, bytes_.data(), 100));
  OK(cuMemcpyPeer(there, second, a_, context_, 100));
  OK(cuMemcpyPeerAsync(b_, context_, there, second, 50, stream_));
  EXPECT_EQ(First(50), ReadBytes(b_, 50));
  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = there;
  box.srcContext = second;
  box.dstDevice = b_;
  box.dstContext = context_;
  box.srcPitch = box.dstPitch = 10;
  box.srcHeight = box.dstHeight = 5;
  box.WidthInBytes = 10;
  box.Height = 5;
  box.Depth = 2;
  OK(cuMemcpy3DPeer(&box));
  EXPECT_EQ(First(100), ReadBytes(b_, 100));
  OK(cuMemsetD8_v2(b_, 0, 100));
  OK(cuMemcpy3DPeerAsync(&box, stream_));
  EXPECT_EQ(First(100), ReadBytes(b_, 100));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
            cuMemcpyPeer(there, reinterpret_cast<CUcontext>(0x10), a_, context_, 1));
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

TEST_F(CopyTest, ThroughArraysByByteOffset) {
  std::vector<std::uint8_t> out(kWidth);
  OK(cuMemcpyHtoD_v2(a_, bytes_.data(), kWidth));
  OK(cuMemcpyDtoA_v2(array_, kWidth, a_, kWidth));  // second row
  OK(cuMemcpyAtoA_v2(other_array_, 0, array_, kWidth, kWidth));
  OK(cuMemcpyAtoD_v2(b_, other_array_, 0, kWidth));
  EXPECT_EQ(First(kWidth), ReadBytes(b_, kWidth));
  OK(cuMemcpyHtoA_v2(array_, 0, bytes_.data() + 5, 20));
  OK(cuMemcpyAtoH_v2(out.data(), array_, 0, 20));
  EXPECT_EQ(0, std::memcmp(out.data(), bytes_.data() + 5, 20));
  OK(cuMemcpyHtoAAsync_v2(array_, 2 * kWidth, bytes_.data() + 7, 20, stream_));
  OK(cuMemcpyAtoHAsync_v2(out.data(), array_, 2 * kWidth, 20, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(0, std::memcmp(out.data(), bytes_.data() + 7, 20));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(array_, 60, bytes_.data(), 5));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(array_, kWidth * kHeight, bytes_.data(), 5));
}

TEST_F(CopyTest, ThroughArraysInTheOldForms) {
  std::vector<std::uint8_t> out(kWidth);
  OK(cuMemcpyHtoD(low_, bytes_.data(), kWidth));
  OK(cuMemcpyDtoA(array_, 0, low_, kWidth));
  OK(cuMemcpyAtoA(other_array_, kWidth, array_, 0, kWidth));
  OK(cuMemcpyAtoD(low_ + kWidth, other_array_, kWidth, kWidth));
  EXPECT_EQ(First(kWidth), ReadBytes(low_ + kWidth, kWidth));
  OK(cuMemcpyHtoA(array_, 0, bytes_.data() + 9, 9));
  OK(cuMemcpyAtoH(out.data(), array_, 0, 9));
  EXPECT_EQ(0, std::memcmp(out.data(), bytes_.data() + 9, 9));
  OK(cuMemcpyHtoAAsync(array_, 0, bytes_.data() + 3, 9, stream_));
  OK(cuMemcpyAtoHAsync(out.data(), array_, 0, 9, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(0, std::memcmp(out.data(), bytes_.data() + 3, 9));
}

TEST_F(CopyTest, RectanglesInEveryForm) {
  // A rectangle of 8 x 3 at (2, 1) of the host's bytes, to the start of device memory.
  CUDA_MEMCPY2D in{};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = bytes_.data();
  in.srcPitch = kWidth;
  in.srcXInBytes = 2;
  in.srcY = 1;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = a_;
  in.dstPitch = 8;
  in.WidthInBytes = 8;
  in.Height = 3;
  std::vector<std::uint8_t> wanted;
  for (int row = 1; row < 4; ++row)
    wanted.insert(wanted.end(), bytes_.begin() + row * kWidth + 2,
                  bytes_.begin() + row * kWidth + 10);
  const auto fills = [&](CUresult result) {
    EXPECT_EQ(CUDA_SUCCESS, result);
    EXPECT_EQ(wanted, ReadBytes(a_, wanted.size()));
    Clear();
  };
  fills(cuMemcpy2D_v2(&in));
  fills(cuMemcpy2DUnaligned_v2(&in));
  fills(cuMemcpy2DAsync_v2(&in, stream_));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = in.srcMemoryType;
  box.srcHost = in.srcHost;
  box.srcPitch = in.srcPitch;
  box.srcXInBytes = in.srcXInBytes;
  box.srcY = in.srcY;
  box.srcHeight = kHeight;
  box.dstMemoryType = in.dstMemoryType;
  box.dstDevice = a_;
  box.dstPitch = 8;
  box.dstHeight = 3;
  box.WidthInBytes = 8;
  box.Height = 3;
  box.Depth = 1;
  fills(cuMemcpy3D_v2(&box));
  fills(cuMemcpy3DAsync_v2(&box, stream_));
  in.dstPitch = 7;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&in));
}

TEST_F(CopyTest, RectanglesInTheOldForms) {
  CUDA_MEMCPY2D_v1 in{};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = bytes_.data();
  in.srcPitch = kWidth;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = low_;
  in.dstPitch = kWidth;
  in.WidthInBytes = kWidth;
  in.Height = 2;
  const auto fills = [&](CUresult result) {
    EXPECT_EQ(CUDA_SUCCESS, result);
    EXPECT_EQ(First(2 * kWidth), ReadBytes(low_, 2 * kWidth));
    Clear();
  };
  fills(cuMemcpy2D(&in));
  fills(cuMemcpy2DUnaligned(&in));
  fills(cuMemcpy2DAsync(&in, stream_));
  CUDA_MEMCPY3D_v1 box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = bytes_.data();
  box.srcPitch = box.dstPitch = kWidth;
  box.srcHeight = box.dstHeight = 2;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = low_;
  box.WidthInBytes = kWidth;
  box.Height = 2;
  box.Depth = 1;
  fills(cuMemcpy3D(&box));
  fills(cuMemcpy3DAsync(&box, stream_));
}

TEST_F(CopyTest, ManyAtOnce) {
  CUdeviceptr to[] = {a_, a_ + 100}, from[2] = {};
  from[0] = reinterpret_cast<CUdeviceptr>(bytes_.data());
  from[1] = from[0] + 50;
  std::size_t sizes[] = {30, 20}, first = 0, failed = 7;
  CUmemcpyAttributes how{};
  how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &how, &first, 1, stream_));
  EXPECT_EQ(First(30), ReadBytes(a_, 30));
  EXPECT_EQ(bytes_[50], ReadBytes(a_ + 100, 20)[0]);
  OK(cuMemcpyBatchAsync(to, from, sizes, 2, &how, &first, 1, &failed, stream_));
  sizes[1] = 1 << 30;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(to, from, sizes, 2, &how, &first, 1, &failed, stream_));
  EXPECT_EQ(1u, failed);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync_v2(to, from, sizes, 1, &how, &first, 1, nullptr))
      << "not in the legacy stream";
}

TEST_F(CopyTest, ManyBoxesAtOnce) {
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(bytes_.data());
  op.src.op.ptr.rowLength = kWidth;
  op.src.op.ptr.layerHeight = kHeight;
  op.dst.op.ptr.ptr = a_;
  op.dst.op.ptr.rowLength = 8;
  op.dst.op.ptr.layerHeight = 2;
  op.extent = {8, 2, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream_));
  std::vector<std::uint8_t> wanted(bytes_.begin(), bytes_.begin() + 8);
  wanted.insert(wanted.end(), bytes_.begin() + kWidth, bytes_.begin() + kWidth + 8);
  EXPECT_EQ(wanted, ReadBytes(a_, 16));
  // From an array, whose lengths are in elements.
  OK(cuMemcpyHtoA_v2(array_, 0, bytes_.data(), kWidth));
  op.src = {};
  op.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  op.src.op.array.array = array_;
  op.src.op.array.offset = {4, 0, 0};
  op.extent = {8, 1, 1};
  std::size_t failed = 7;
  OK(cuMemcpy3DBatchAsync(1, &op, &failed, 0, stream_));
  EXPECT_EQ(bytes_[4], ReadBytes(a_, 8)[0]);
  op.extent.width = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &op, &failed, 0, stream_));
  EXPECT_EQ(0u, failed);
}

TEST_F(CopyTest, FillsInEveryForm) {
  const auto holds = [&](CUdeviceptr from, std::vector<std::uint8_t> wanted) {
    EXPECT_EQ(wanted, ReadBytes(from, wanted.size()));
    Clear();
  };
  OK(cuMemsetD16_v2(a_, 0x0102, 2));
  holds(a_, {2, 1, 2, 1, 0});
  OK(cuMemsetD16Async(a_, 0x0304, 1, stream_));
  holds(a_, {4, 3, 0});
  OK(cuMemsetD8Async(a_, 9, 2, stream_));
  holds(a_, {9, 9, 0});
  OK(cuMemsetD2D8_v2(a_, 4, 5, 2, 2));
  holds(a_, {5, 5, 0, 0, 5, 5, 0, 0});
  OK(cuMemsetD2D8Async(a_, 4, 6, 1, 2, stream_));
  holds(a_, {6, 0, 0, 0, 6, 0});
  OK(cuMemsetD2D16_v2(a_, 4, 0x0708, 1, 2));
  holds(a_, {8, 7, 0, 0, 8, 7, 0, 0});
  OK(cuMemsetD2D16Async(a_, 4, 1, 1, 2, stream_));
  holds(a_, {1, 0, 0, 0, 1, 0});
  OK(cuMemsetD2D32_v2(a_, 8, 1, 1, 2));
  holds(a_, {1, 0, 0, 0, 0, 0, 0, 0, 1});
  OK(cuMemsetD2D32Async(a_, 8, 2, 1, 2, stream_));
  holds(a_, {2, 0, 0, 0, 0, 0, 0, 0, 2});
  OK(cuMemsetD8(low_, 3, 2));
  holds(low_, {3, 3, 0});
  OK(cuMemsetD16(low_, 3, 2));
  holds(low_, {3, 0, 3, 0, 0});
  OK(cuMemsetD32(low_, 3, 1));
  holds(low_, {3, 0, 0, 0, 0});
  OK(cuMemsetD2D8(low_, 4, 5, 2, 2));
  holds(low_, {5, 5, 0, 0, 5, 5, 0, 0});
  OK(cuMemsetD2D16(low_, 4, 5, 1, 2));
  holds(low_, {5, 0, 0, 0, 5, 0});
  OK(cuMemsetD2D32(low_, 8, 5, 1, 2));
  holds(low_, {5, 0, 0, 0, 0, 0, 0, 0, 5});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD16_v2(a_ + 1, 0, 1)) << "not aligned";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(a_, 0, 1 << 30));
}

}  // namespace
}  // namespace tessera::sim::testing
