// The driver's message log. This driver keeps none, so it is always empty; who registers for it
// hears nothing.
#include <fcntl.h>
#include <unistd.h>

#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/handles.h"

using namespace tessera::sim;

namespace {

struct Listener {
  static constexpr HandleKind kKind = HandleKind::kLogsCallback;
  using Handle = CUlogsCallbackHandle;
  CUlogsCallback callback;
  void* data;
};

}  // namespace

SIM_API(cuLogsRegisterCallback)(CUlogsCallback callback, void* data, CUlogsCallbackHandle* handle) {
  if (!callback || !handle) return CUDA_ERROR_INVALID_VALUE;
  auto* listener = new (std::nothrow) Listener{callback, data};
  if (!listener) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = NewHandle(listener);
  return CUDA_SUCCESS;
}

SIM_API(cuLogsUnregisterCallback)(CUlogsCallbackHandle handle) {
  Listener* listener = RemoveHandle<Listener>(handle);
  delete listener;
  return listener ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuLogsCurrent)(CUlogIterator* iterator, unsigned flags) {
  if (!iterator || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator = 0;
  return CUDA_SUCCESS;
}

SIM_API(cuLogsDumpToFile)(CUlogIterator*, const char* path, unsigned flags) {
  if (!path || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  close(file);
  return CUDA_SUCCESS;
}

SIM_API(cuLogsDumpToMemory)(CUlogIterator*, char* buffer, std::size_t* size, unsigned flags) {
  if (!buffer || !size || *size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  buffer[0] = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}
