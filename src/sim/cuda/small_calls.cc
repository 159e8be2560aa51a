// Calls that have no part of their own.
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/context.h"
#include "sim/cuda/device.h"

using namespace tessera::sim;

namespace {

struct Notification {
  static constexpr HandleKind kKind = HandleKind::kAsyncCallback;
  using Handle = CUasyncCallbackHandle;
  int card;
  CUasyncCallback callback;
  void* data;
};

CUresult Current() {
  Context* context = nullptr;
  return CurrentContext(&context);
}

}  // namespace

// Deprecated pair: attaching names the current context, detaching destroys it.
SIM_API(cuCtxAttach)(CUcontext* handle, unsigned flags) {
  if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Current());
  return impl_cuCtxGetCurrent(handle);
}
SIM_API(cuCtxDetach)(CUcontext handle) { return impl_cuCtxDestroy_v2(handle); }

SIM_API(cuFlushGPUDirectRDMAWrites)(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
      (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
       scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
    return CUDA_ERROR_INVALID_VALUE;
  return Current();
}

// Registered, but no card of this driver asks for memory back.
SIM_API(cuDeviceRegisterAsyncNotification)(CUdevice ordinal, CUasyncCallback callback, void* data,
                                           CUasyncCallbackHandle* handle) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!callback || !handle) return CUDA_ERROR_INVALID_VALUE;
  auto* notification = new (std::nothrow) Notification{device->card, callback, data};
  if (!notification) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = NewHandle(notification);
  return CUDA_SUCCESS;
}
SIM_API(cuDeviceUnregisterAsyncNotification)(CUdevice ordinal, CUasyncCallbackHandle handle) {
  const Device* device = FindDevice(ordinal);
  const Notification* notification = Find<Notification>(handle);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!notification || notification->card != device->card) return CUDA_ERROR_INVALID_VALUE;
  delete RemoveHandle<Notification>(handle);
  return CUDA_SUCCESS;
}

SIM_API(cuProfilerInitialize)(const char*, const char*, CUoutput_mode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}  // removed in 12.0
SIM_API(cuProfilerStart)() { return Current(); }
SIM_API(cuProfilerStop)() { return Current(); }

// Resources of graphics libraries cannot be registered here (there is no display driver), so every
// handle to one is unknown.
SIM_API(cuGraphicsUnregisterResource)(CUgraphicsResource) { return CUDA_ERROR_INVALID_HANDLE; }
SIM_API(cuGraphicsSubResourceGetMappedArray)(CUarray*, CUgraphicsResource, unsigned, unsigned) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsResourceGetMappedMipmappedArray)(CUmipmappedArray*, CUgraphicsResource) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsResourceGetMappedPointer)(CUdeviceptr_v1*, unsigned*, CUgraphicsResource) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsResourceGetMappedPointer_v2)(CUdeviceptr*, std::size_t*, CUgraphicsResource) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsResourceSetMapFlags)(CUgraphicsResource, unsigned) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsResourceSetMapFlags_v2)(CUgraphicsResource, unsigned) {
  return CUDA_ERROR_INVALID_HANDLE;
}
SIM_API(cuGraphicsMapResources)(unsigned count, CUgraphicsResource* resources, CUstream) {
  return count && resources ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuGraphicsUnmapResources)(unsigned count, CUgraphicsResource* resources, CUstream) {
  return count && resources ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

// No card of this driver offers memory as a dma-buf (attribute DMA_BUF_SUPPORTED is 0).
SIM_API(cuMemGetHandleForAddressRange)(void* handle, CUdeviceptr, std::size_t size,
                                       CUmemRangeHandleType type, unsigned long long) {
  if (!handle || size == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Current());
  return CUDA_ERROR_NOT_SUPPORTED;
}
