// External semaphores. Those that come from another API through a file descriptor are kept as a
// counter of this process: a signal sets it at its time, a wait holds its stream until the counter
// is there.
#include <atomic>
#include <memory>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/semaphore_work.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

struct ExternalSemaphore {
  static constexpr HandleKind kKind = HandleKind::kExternalSemaphore;
  using Handle = CUexternalSemaphore;
  CUexternalSemaphore handle{};
  CUexternalSemaphoreHandleType type{};
  bool timeline = false;  // counts up to values; else one signal lets one wait through
  std::atomic<std::uint64_t> value{0};
  // The handle's own reference. Work that names the semaphore holds one each: it may be destroyed
  // while that work is held.
  std::shared_ptr<ExternalSemaphore> own;
};
using Semaphores = std::vector<std::shared_ptr<ExternalSemaphore>>;

std::uint64_t ValueOf(const ExternalSemaphore& semaphore, std::uint64_t asked) {
  return semaphore.timeline ? asked : 1;
}

CUresult FindAll(const std::vector<CUexternalSemaphore>& handles, Semaphores* found) {
  for (CUexternalSemaphore handle : handles) {
    const ExternalSemaphore* semaphore = Find<ExternalSemaphore>(handle);
    if (semaphore == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    found->push_back(semaphore->own);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult SignalSemaphores(Stream& stream, const std::vector<CUexternalSemaphore>& handles,
                          const std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>& params) {
  Semaphores semaphores;
  SIM_TRY(FindAll(handles, &semaphores));
  for (std::size_t i = 0; i < semaphores.size(); ++i) {
    Work signal;
    signal.at_its_time = true;
    signal.effect = [semaphore = semaphores[i],
                     value = ValueOf(*semaphores[i], params[i].params.fence.value)] {
      semaphore->value.store(value);
      MemoryChanged();
    };
    SIM_TRY(Submit(stream, std::move(signal)));
  }
  return CUDA_SUCCESS;
}

CUresult WaitForSemaphores(Stream& stream, const std::vector<CUexternalSemaphore>& handles,
                           const std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>& params) {
  Semaphores semaphores;
  SIM_TRY(FindAll(handles, &semaphores));
  for (std::size_t i = 0; i < semaphores.size(); ++i) {
    Work wait;
    wait.ready = [semaphore = semaphores[i],
                  value = ValueOf(*semaphores[i], params[i].params.fence.value)] {
      if (semaphore->timeline) return semaphore->value.load() >= value;
      std::uint64_t signalled = 1;
      return semaphore->value.compare_exchange_strong(signalled, 0);
    };
    SIM_TRY(Submit(stream, std::move(wait)));
  }
  return CUDA_SUCCESS;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuImportExternalSemaphore)(CUexternalSemaphore* handle,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* desc) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (handle == nullptr || desc == nullptr || desc->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (desc->type) {
    case CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD:
    case CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD:
      if (desc->handle.fd < 0) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // handles of Windows
  }
  const auto semaphore = std::make_shared<ExternalSemaphore>();
  semaphore->own = semaphore;
  semaphore->type = desc->type;
  semaphore->timeline = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  semaphore->handle = NewHandle(semaphore.get());
  *handle = semaphore->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuDestroyExternalSemaphore)(CUexternalSemaphore handle) {
  ExternalSemaphore* semaphore = RemoveHandle<ExternalSemaphore>(handle);
  if (semaphore == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<ExternalSemaphore> last = std::move(semaphore->own);
  return CUDA_SUCCESS;
}

SIM_API(cuSignalExternalSemaphoresAsync)(const CUexternalSemaphore* handles,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params,
                                         unsigned count, CUstream stream_handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  if (handles == nullptr || params == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<CUexternalSemaphore> list(handles, handles + count);
  const std::vector<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS> values(params, params + count);
  if (!Capturing(*stream)) return SignalSemaphores(*stream, list, values);
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  node.context = stream->context->handle;
  node.semaphores = list;
  node.signals = values;
  return CaptureNode(*stream, std::move(node));
}

SIM_API(cuWaitExternalSemaphoresAsync)(const CUexternalSemaphore* handles,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params,
                                       unsigned count, CUstream stream_handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  if (handles == nullptr || params == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<CUexternalSemaphore> list(handles, handles + count);
  const std::vector<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> values(params, params + count);
  if (!Capturing(*stream)) return WaitForSemaphores(*stream, list, values);
  NodeParams node;
  node.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
  node.context = stream->context->handle;
  node.semaphores = list;
  node.waits = values;
  return CaptureNode(*stream, std::move(node));
}
