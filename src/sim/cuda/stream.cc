// Streams: making, asking, ending. The order of their work is in work.cc.
#include "sim/cuda/stream.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/event.h"
#include "sim/cuda/green_context.h"
#include "sim/cuda/work.h"

namespace tessera::sim {

namespace {

std::atomic<std::uint64_t> next_stream_id{
    3};  // 1 and 2 are the legacy and per-thread streams' numbers

std::uint32_t ThreadId() {
  thread_local constinit std::uint32_t id = 0;
  if (id == 0) id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return id;
}

Stream& PerThreadStream(Context& context) {
  struct Last {
    std::uint64_t context_id;
    Stream* stream;
  };
  thread_local constinit Last last{0, nullptr};
  if (last.context_id == context.id && last.stream != nullptr) return *last.stream;
  ContextStreams& all = StreamsOf(context);
  const std::uint32_t thread = ThreadId();
  std::lock_guard lock(WorkMutex());
  for (Stream* stream : all.streams) {
    if (stream->owner_thread.load(std::memory_order_relaxed) != thread) continue;
    last = {context.id, stream};
    return *stream;
  }
  auto* stream = new Stream;
  stream->context = &context;
  stream->id = next_stream_id.fetch_add(1);
  stream->owner_thread.store(thread);
  all.streams.push_back(stream);
  last = {context.id, stream};
  return *stream;
}

}  // namespace

CUresult FindStream(CUstream handle, Stream** stream) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    *stream = &StreamsOf(*context);
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    *stream = &PerThreadStream(*context);
    return CUDA_SUCCESS;
  }
  *stream = Find<Stream>(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Usable(*(*stream)->context);
}

CUresult MakeStream(Context& context, unsigned flags, int priority, GreenContext* green,
                    CUstream* handle) {
  if (handle == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto* stream = new Stream;
  stream->context = &context;
  stream->id = next_stream_id.fetch_add(1);
  stream->flags = flags;
  stream->green = green;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  stream->handle = NewHandle(stream);
  if (stream->handle == nullptr) {
    delete stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ContextStreams& all = StreamsOf(context);
  std::lock_guard lock(WorkMutex());
  all.streams.push_back(stream);
  *handle = stream->handle;
  return CUDA_SUCCESS;
}

void SynchronizeForEnd(Context& context) {
  FinishWork(context);
  if (context.legacy_stream.load() == nullptr) return;
  for (const Point& tail : TailsOf(context)) WaitFor(tail);
}

void EndStreamsOf(Context& context) {
  EndCapturesOf(context);
  EndEventsOf(context);
  EndGraphMemoryOf(context);
  Stream* legacy = context.legacy_stream.load();
  if (legacy == nullptr) return;
  std::vector<Stream*> streams;
  {
    std::lock_guard lock(WorkMutex());
    streams = StreamsOf(context).streams;
  }
  for (Stream* stream : streams) {
    if (stream->handle != nullptr) RemoveHandle<Stream>(stream->handle);
    // Per-thread streams may be in another thread's cache, which looks at the context's id only:
    // they stay.
    if (stream->owner_thread.load() == 0) DestroyStream(*stream);
  }
  std::lock_guard lock(WorkMutex());
  for (Stream* stream : StreamsOf(context).streams) {
    stream->busy_until_ns.store(0);
    stream->effects_until_ns = 0;
  }
  ContextStreams& all = StreamsOf(context);
  all.blocking_tail_ns = all.blocking_effects_ns = all.dropped_tail_ns = all.dropped_effects_ns = 0;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuStreamCreateWithPriority)(CUstream* handle, unsigned flags, int priority) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  return MakeStream(*context, flags, priority, nullptr, handle);
}

SIM_API(cuStreamCreate)(CUstream* handle, unsigned flags) {
  return impl_cuStreamCreateWithPriority(handle, flags, 0);
}

SIM_API(cuStreamDestroy_v2)(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = Find<Stream>(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DropFromCapture(*stream);
  RemoveHandle<Stream>(handle);
  DestroyStream(*stream);
  return CUDA_SUCCESS;
}

SIM_API(cuStreamDestroy)(CUstream handle) { return impl_cuStreamDestroy_v2(handle); }

SIM_API(cuStreamQuery)(CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  SIM_TRY(RefuseCaptured(*stream));
  SIM_TRY(RefuseLegacyCapture(*stream));
  return IsDone(TailOf(*stream)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(cuStreamSynchronize)(CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  SIM_TRY(RefuseCaptured(*stream));
  SIM_TRY(RefuseLegacyCapture(*stream));
  return Synchronize(*stream);
}

SIM_API(cuCtxSynchronize)() {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(RefuseContextCaptured(*context));
  return SynchronizeContext(*context);
}

SIM_API(cuCtxSynchronize_v2)(CUcontext handle) {
  Context* context = nullptr;
  SIM_TRY(FindContext(handle, &context));
  SIM_TRY(RefuseContextCaptured(*context));
  return SynchronizeContext(*context);
}

SIM_API(cuStreamGetPriority)(CUstream handle, int* priority) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetFlags)(CUstream handle, unsigned* flags) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetId)(CUstream handle, unsigned long long* id) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetDevice)(CUstream handle, CUdevice* device) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetCtx)(CUstream handle, CUcontext* context) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetCtx_v2)(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = stream->green != nullptr ? stream->green->handle : nullptr;
  *context = stream->green != nullptr ? nullptr : stream->context->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamGetAttribute)(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(WorkMutex());
  std::memset(value, 0, sizeof(*value));
  if (static_cast<std::size_t>(id) < stream->attributes.size()) *value = stream->attributes[id];
  switch (static_cast<int>(id)) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = stream->priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value->syncPolicy == 0) value->syncPolicy = CU_SYNC_POLICY_AUTO;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      if (stream->attributes.size() <= static_cast<std::size_t>(id))
        value->memSyncDomainMap.remote = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuStreamSetAttribute)(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(id)) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(WorkMutex());
  if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    stream->priority = std::clamp(value->priority, kGreatestPriority, kLeastPriority);
  if (stream->attributes.size() <= static_cast<std::size_t>(id)) stream->attributes.resize(id + 1);
  stream->attributes[id] = *value;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamCopyAttributes)(CUstream to, CUstream from) {
  Stream *target = nullptr, *source = nullptr;
  SIM_TRY(FindStream(to, &target));
  SIM_TRY(FindStream(from, &source));
  std::lock_guard lock(WorkMutex());
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}

SIM_API(cuStreamAttachMemAsync)(CUstream handle, CUdeviceptr pointer, std::size_t, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (pointer == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
                       flags != CU_MEM_ATTACH_SINGLE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (Capturing(*stream)) return RefuseCaptured(*stream);
  return Enqueue(*stream, EngineKind::kNone, 0, nullptr);
}
