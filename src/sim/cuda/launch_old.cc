// Launches of CUDA before 4.0: the function carries its block shape, shared memory and parameters.
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/launch.h"

using namespace tessera::sim;

SIM_API(cuFuncSetBlockShape)(CUfunction handle, int x, int y, int z) {
  Function* function = Find<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->old_block[0] = x;
  function->old_block[1] = y;
  function->old_block[2] = z;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncSetSharedSize)(CUfunction handle, unsigned bytes) {
  Function* function = Find<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  function->old_shared = bytes;
  return CUDA_SUCCESS;
}

SIM_API(cuParamSetSize)(CUfunction handle, unsigned bytes) {
  Function* function = Find<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  function->old_params.resize(bytes);
  return CUDA_SUCCESS;
}

SIM_API(cuParamSetv)(CUfunction handle, int offset, void* from, unsigned bytes) {
  Function* function = Find<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset < 0 || from == nullptr || bytes > 4096 || offset > 4096)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t end = static_cast<std::size_t>(offset) + bytes;
  if (function->old_params.size() < end) function->old_params.resize(end);
  std::memcpy(function->old_params.data() + offset, from, bytes);
  return CUDA_SUCCESS;
}

SIM_API(cuParamSeti)(CUfunction handle, int offset, unsigned value) {
  return impl_cuParamSetv(handle, offset, &value, sizeof(value));
}
SIM_API(cuParamSetf)(CUfunction handle, int offset, float value) {
  return impl_cuParamSetv(handle, offset, &value, sizeof(value));
}
SIM_API(cuParamSetTexRef)(CUfunction handle, int, CUtexref) {
  return Find<Function>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

SIM_API(cuLaunchGridAsync)(CUfunction handle, int width, int height, CUstream stream_handle) {
  Function* function = Find<Function>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::size_t size = function->old_params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, function->old_params.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  const int* block = function->old_block;
  return impl_cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                             static_cast<unsigned>(block[0]), static_cast<unsigned>(block[1]),
                             static_cast<unsigned>(block[2]), function->old_shared, stream_handle,
                             nullptr, size != 0 ? extra : nullptr);
}

SIM_API(cuLaunchGrid)(CUfunction function, int width, int height) {
  return impl_cuLaunchGridAsync(function, width, height, nullptr);
}
SIM_API(cuLaunch)(CUfunction function) { return impl_cuLaunchGridAsync(function, 1, 1, nullptr); }
