// Order of work on streams.
#include "sim/cuda/stream.h"

#include <algorithm>

namespace tessera::sim {

CUresult FindStream(CUstream handle, Stream** stream) {
  Context* context = nullptr;
  if (CUresult failed = CurrentContext(&context)) return failed;
  if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    *stream = Find<Stream>(handle);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  std::lock_guard lock(context->mutex);
  if (!context->legacy_stream.load()) {
    auto* made = new Stream;
    made->context = context;
    context->legacy_stream = made;
  }
  *stream = context->legacy_stream.load();
  return CUDA_SUCCESS;
}

CUresult Enqueue(Stream& stream, EngineKind engine, std::uint64_t duration_ns, std::function<void()> effect) {
  const std::uint64_t start = std::max(NowNs(), stream.busy_until_ns.load());
  stream.busy_until_ns = engine == EngineKind::kNone
                             ? start
                             : SubmitWork(stream.context->card, static_cast<int>(engine), start, duration_ns);
  if (effect) effect();
  return CUDA_SUCCESS;
}

CUresult Synchronize(Stream& stream) {
  SleepUntil(stream.busy_until_ns.load());
  return CUDA_SUCCESS;
}

CUresult SynchronizeContext(Context& context) {
  if (Stream* stream = context.legacy_stream.load()) Synchronize(*stream);
  return CUDA_SUCCESS;
}

CUresult CaptureCopy(Stream&, const CUDA_MEMCPY3D&) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult CaptureMemset(Stream&, const CUDA_MEMSET_NODE_PARAMS&) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult CaptureAlloc(Stream&, CUDA_MEM_ALLOC_NODE_PARAMS&) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult CaptureFree(Stream&, CUdeviceptr) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult ForbiddenInCapture() { return CUDA_SUCCESS; }

void SynchronizeForEnd(Context& context) { SynchronizeContext(context); }
void EndModulesOf(Context&) {}
void EndStreamsOf(Context& context) { delete context.legacy_stream.exchange(nullptr); }

}  // namespace tessera::sim
