// Host functions on streams.
#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/work.h"

using namespace tessera::sim;

SIM_API(cuLaunchHostFunc)(CUstream handle, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Capturing(*stream)) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_HOST;
    node.context = stream->context->handle;
    node.host = {function, data};
    return CaptureNode(*stream, std::move(node));
  }
  SIM_TRY(RefuseLegacyCapture(*stream));
  Work work;
  work.host_function = true;
  work.effect = [function, data] {
    function(data);
    MemoryChanged();
  };
  return Submit(*stream, std::move(work));
}

SIM_API(cuStreamAddCallback)(CUstream handle, CUstreamCallback callback, void* data,
                             unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(RefuseCaptured(*stream));
  SIM_TRY(RefuseLegacyCapture(*stream));
  Work work;
  work.host_function = true;
  work.effect = [callback, handle, data, context = stream->context] {
    callback(handle, Usable(*context), data);
    MemoryChanged();
  };
  return Submit(*stream, std::move(work));
}
