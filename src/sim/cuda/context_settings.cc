// What can be asked of and set on a context.
#include "sim/cuda/api.h"
#include "sim/cuda/context.h"
#include "sim/cuda/stream.h"

using namespace tessera::sim;

namespace {

// Local memory that the device heap, printf FIFO and stack limits take is not charged: the driver
// takes it lazily, at the first launch of a kernel that needs it.
bool KnownLimit(CUlimit limit) { return limit >= 0 && limit < CU_LIMIT_MAX; }

}  // namespace

SIM_API(cuCtxGetId)(CUcontext handle, unsigned long long* id) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = handle ? Find<Context>(handle) : CurrentContextOrNull();
  if (!context) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetFlags)(unsigned* flags) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetFlags)(unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetLimit)(std::size_t* value, CUlimit limit) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (!KnownLimit(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetLimit)(CUlimit limit, std::size_t value) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (!KnownLimit(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE && value > 512 * 1024) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > context->device->spec->memory_bytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetApiVersion)(CUcontext handle, unsigned* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = handle ? Find<Context>(handle) : CurrentContextOrNull();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCacheConfig)(CUfunc_cache* config) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  *config = static_cast<CUfunc_cache>(context->cache_config.load());
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCacheConfig)(CUfunc_cache config) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetSharedMemConfig)(CUsharedconfig* config) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  *config = static_cast<CUsharedconfig>(context->shared_config.load());
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetSharedMemConfig)(CUsharedconfig config) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
  context->shared_config = config;
  return CUDA_SUCCESS;
}

// Six priorities, 0 the lowest, on cards since Volta.
SIM_API(cuCtxGetStreamPriorityRange)(int* least, int* greatest) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (least) *least = 0;
  if (greatest) *greatest = context->device->spec->cc_major >= 7 ? -5 : -1;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxResetPersistingL2Cache)() {
  Context* context = nullptr;
  return CurrentContext(&context);
}

SIM_API(cuCtxGetExecAffinity)(CUexecAffinityParam* affinity, CUexecAffinityType type) {
  if (!affinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SIM_API(cuCtxEnablePeerAccess)(CUcontext peer_handle, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  const Context* peer = Find<Context>(peer_handle);
  if (!peer || peer->card == context->card)
    return peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT;
  if (context->device->spec->link_type[peer->card] == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  std::lock_guard lock(context->mutex);
  return context->peers.insert(peer->card).second ? CUDA_SUCCESS
                                                  : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_API(cuCtxDisablePeerAccess)(CUcontext peer_handle) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  const Context* peer = Find<Context>(peer_handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(context->mutex);
  return context->peers.erase(peer->card) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
