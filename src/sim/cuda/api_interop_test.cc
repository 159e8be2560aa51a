// What comes from outside: external memory and semaphores, green contexts, tensor maps, logs,
// graphics, memory in other shapes. Where a card of this driver has no such thing, the documented
// error.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

using InteropTest = DeviceTest;

int Semaphore() { return memfd_create("semaphore", MFD_CLOEXEC); }

CUexternalSemaphore Import(CUexternalSemaphoreHandleType type) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC description{};
  description.type = type;
  description.handle.fd = Semaphore();
  CUexternalSemaphore semaphore{};
  EXPECT_EQ(CUDA_SUCCESS, cuImportExternalSemaphore(&semaphore, &description));
  return semaphore;
}

TEST_F(InteropTest, ExternalTimelineSemaphoreHoldsAStream) {
  const CUexternalSemaphore semaphore =
      Import(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
  CUstream waits{}, signals{};
  OK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&signals, CU_STREAM_NON_BLOCKING));
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  wait.params.fence.value = 2;
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, waits));
  signal.params.fence.value = 1;
  OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, signals));
  OK(cuStreamSynchronize(signals));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(waits)) << "2 is waited for";
  signal.params.fence.value = 3;
  OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, signals));
  OK(cuStreamSynchronize(waits));
  OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, waits));
  OK(cuStreamSynchronize(waits));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuWaitExternalSemaphoresAsync(&semaphore, nullptr, 1, waits));
  OK(cuDestroyExternalSemaphore(semaphore));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalSemaphore(semaphore));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, signals));
}

TEST_F(InteropTest, ExternalBinarySemaphoreLetsOneWaitThrough) {
  const CUexternalSemaphore semaphore = Import(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream));
  OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  CUstream other{};
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, other));
  OK(cuStreamSynchronize(stream));
}

TEST_F(InteropTest, ExternalHandlesOfOtherSystemsAreRefused) {
  CUexternalSemaphore semaphore{};
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC description{};
  description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalSemaphore(&semaphore, &description));
  description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuImportExternalSemaphore(&semaphore, &description));
  description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
  description.handle.fd = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuImportExternalSemaphore(&semaphore, &description));
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory{};
  CUexternalMemory imported{};
  memory.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF;
  memory.size = 4096;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&imported, &memory));
  memory.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  memory.handle.fd = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&imported, &memory));
}

TEST_F(InteropTest, ExternalMemoryBeyondTheCardIsRefused) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory{};
  CUexternalMemory imported{};
  memory.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  memory.handle.fd = memfd_create("memory", MFD_CLOEXEC);
  memory.size = std::uint64_t{1} << 40;
  const std::uint64_t before = FreeBytes(0);
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuImportExternalMemory(&imported, &memory));
  EXPECT_EQ(before, FreeBytes(0));
  close(memory.handle.fd);  // a refused import leaves it to the program
}

TEST_F(InteropTest, ExternalMemoryAsAnArray) {
  constexpr std::size_t kBytes = 4 << 20;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory{};
  memory.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  memory.handle.fd = memfd_create("memory", MFD_CLOEXEC);
  memory.size = kBytes;
  ASSERT_EQ(0, ftruncate(memory.handle.fd, kBytes));
  const std::uint64_t before = FreeBytes(0);
  CUexternalMemory imported{};
  OK(cuImportExternalMemory(&imported, &memory));
  EXPECT_EQ(before - kBytes, FreeBytes(0));
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC levels{};
  levels.arrayDesc = {256, 256, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  levels.numLevels = 2;
  CUmipmappedArray mipmap{};
  OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, imported, &levels));
  CUarray level{};
  OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  OK(cuArray3DGetDescriptor_v2(&shape, level));
  EXPECT_EQ(128u, shape.Width);
  EXPECT_EQ(before - kBytes, FreeBytes(0)) << "the memory is the import's";
  OK(cuMipmappedArrayDestroy(mipmap));
  levels.offset = kBytes;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuExternalMemoryGetMappedMipmappedArray(&mipmap, imported, &levels));
  OK(cuDestroyExternalMemory(imported));
  EXPECT_EQ(before, FreeBytes(0));
}

TEST_F(InteropTest, GreenContextTakesPartOfTheCard) {
  CUdevResource whole{}, parts[2]{}, rest{};
  OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  CUdevResource of_context{};
  OK(cuCtxGetDevResource(context_, &of_context, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(whole.sm.smCount, of_context.sm.smCount);
  unsigned groups = 0;
  OK(cuDevSmResourceSplitByCount(nullptr, &groups, &whole, nullptr, 0, 8));
  EXPECT_EQ(whole.sm.smCount / 8, groups);
  groups = 2;
  OK(cuDevSmResourceSplitByCount(parts, &groups, &whole, &rest, 0, 8));
  EXPECT_EQ(2u, groups);
  EXPECT_EQ(8u, parts[0].sm.smCount);
  EXPECT_EQ(whole.sm.smCount - 16, rest.sm.smCount);
  CUdevResourceDesc description{};
  OK(cuDevResourceGenerateDesc(&description, parts, 1));
  CUgreenCtx green{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, description, 0, 0));
  OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CUdevResource own{};
  OK(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(8u, own.sm.smCount);
  unsigned long long id = 0;
  OK(cuGreenCtxGetId(green, &id));
  EXPECT_NE(0u, id);
  CUcontext context{};
  OK(cuCtxFromGreenCtx(&context, green));
  EXPECT_EQ(context_, context);
  CUstream stream{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0));
  OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CUgreenCtx of_stream{};
  OK(cuStreamGetGreenCtx(stream, &of_stream));
  EXPECT_EQ(green, of_stream);
  OK(cuStreamGetCtx_v2(stream, &context, &of_stream));
  EXPECT_EQ(nullptr, context);
  EXPECT_EQ(green, of_stream);
  CUevent event{};
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  Launch("k100us", stream);
  OK(cuGreenCtxRecordEvent(green, event));
  OK(cuEventSynchronize(event));
  OK(cuStreamQuery(stream));
  OK(cuGreenCtxWaitEvent(green, event));
  OK(cuGreenCtxDestroy(green));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxDestroy(green));
}

TEST_F(InteropTest, TensorMapsAreChecked) {
  CUtensorMap map;  // aligned as its type asks
  const CUdeviceptr memory = Word();
  void* const address = reinterpret_cast<void*>(memory);
  const cuuint64_t dim[3] = {64, 32, 2}, strides[2] = {128, 4096};
  const cuuint32_t box[3] = {64, 8, 1}, steps[3] = {1, 1, 1};
  const auto tiled = [&](cuuint32_t rank, void* at, const cuuint32_t* size) {
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, at, dim, strides,
                                  size, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  OK(tiled(3, address, box));
  OK(cuTensorMapReplaceAddress(&map, address));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, nullptr));
  const cuuint32_t too_large[3] = {257, 1, 1};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, tiled(3, address, too_large));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, tiled(6, address, box));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, tiled(3, reinterpret_cast<void*>(memory + 1), box));
  const int corner[1] = {0};
  OK(cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, address, dim, strides,
                             corner, corner, 64, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, address, dim, strides,
                                    corner, corner, 64, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  OK(cuTensorMapEncodeIm2colWide(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, address, dim, strides, 0, 0, 64, 32, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

TEST_F(InteropTest, LogIsEmpty) {
  CUlogsCallbackHandle handle{};
  const CUlogsCallback callback = [](void*, CUlogLevel, char*, std::size_t) {};
  OK(cuLogsRegisterCallback(callback, nullptr, &handle));
  OK(cuLogsUnregisterCallback(handle));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback(handle));
  CUlogIterator at = 7;
  OK(cuLogsCurrent(&at, 0));
  char text[16] = "x";
  std::size_t size = sizeof text;
  OK(cuLogsDumpToMemory(&at, text, &size, 0));
  EXPECT_EQ(0u, size);
  EXPECT_STREQ("", text);
  const std::string path = "/tmp/simcuda-log-" + std::to_string(getpid());
  OK(cuLogsDumpToFile(&at, path.c_str(), 0));
  EXPECT_EQ(0, unlink(path.c_str()));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile(&at, "/nonexistent/x", 0));
}

TEST_F(InteropTest, GraphicsResourcesAreUnknown) {
  const auto resource = reinterpret_cast<CUgraphicsResource>(0x10);
  CUgraphicsResource list[] = {resource};
  CUdeviceptr pointer = 0;
  CUdeviceptr_v1 old_pointer = 0;
  std::size_t size = 0;
  unsigned old_size = 0;
  CUarray array{};
  CUmipmappedArray mipmap{};
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsMapResources(1, list, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsUnmapResources(1, list, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsUnregisterResource(resource));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsResourceSetMapFlags(resource, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsResourceSetMapFlags_v2(resource, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuGraphicsResourceGetMappedPointer_v2(&pointer, &size, resource));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuGraphicsResourceGetMappedPointer(&old_pointer, &old_size, resource));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuGraphicsSubResourceGetMappedArray(&array, resource, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuGraphicsResourceGetMappedMipmappedArray(&mipmap, resource));
}

TEST_F(InteropTest, WhatNoCardHereHasIsNotSupported) {
  int file = -1;
  EXPECT_EQ(
      CUDA_ERROR_NOT_SUPPORTED,
      cuMemGetHandleForAddressRange(&file, Word(), 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CUmemDecompressParams params{};
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMemBatchDecompressAsync(&params, 1, 0, nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuDeviceGetNvSciSyncAttributes(&params, 0, 1));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuProfilerInitialize("", "", CU_OUT_CSV));
  OK(cuProfilerStart());
  OK(cuProfilerStop());
  // Multicast needs a card with an NVLink switch.
  CUmulticastObjectProp properties{};
  properties.numDevices = 2;
  properties.size = 2 << 20;
  std::size_t granularity = 0;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
            cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&handle, &properties));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMulticastAddDevice(handle, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(handle, 0, 0, 0, 2 << 20, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastBindAddr(handle, 0, Word(), 2 << 20, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(handle, 0, 0, 2 << 20));
}

TEST_F(InteropTest, NotificationsAreTaken) {
  const CUasyncCallback callback = [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {};
  CUasyncCallbackHandle handle{};
  OK(cuDeviceRegisterAsyncNotification(0, callback, nullptr, &handle));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceUnregisterAsyncNotification(1, handle));
  OK(cuDeviceUnregisterAsyncNotification(0, handle));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceUnregisterAsyncNotification(0, handle));
  OK(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}

}  // namespace
}  // namespace tessera::sim::testing
