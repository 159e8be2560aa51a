// A library whose calls go straight to the driver when it is opened with RTLD_DEEPBIND: its own
// dependencies come before what was preloaded.
#include <cuda.h>

#include <cstddef>

extern "C" [[gnu::visibility("default")]] int HoldDeep(std::size_t bytes) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  if (CUresult result = cuInit(0); result != CUDA_SUCCESS) return result;
  if (CUresult result = cuDevicePrimaryCtxRetain(&context, 0); result != CUDA_SUCCESS)
    return result;
  if (CUresult result = cuCtxSetCurrent(context); result != CUDA_SUCCESS) return result;
  return cuMemAlloc(&address, bytes);
}
