// Contexts, and what is asked of devices.
#include <cstring>

#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

thread_local std::vector<Context*> t_pushed;

void EndContext(Context* context) {
  std::vector<std::uint64_t> owned;
  for (const auto& [address, range] : D().ranges) {
    if (range.context == context && range.pool == nullptr) owned.push_back(address);
  }
  for (const std::uint64_t address : owned) TakeBack(address);
  for (auto it = D().arrays.begin(); it != D().arrays.end();) {
    Array* array = *it++;
    if (array->context != context) continue;
    D().bytes[context->card] -= Blocks(array->bytes);
    D().arrays.erase(array);
    EndBindingsOf(reinterpret_cast<std::uint64_t>(array));
    delete array;
  }
  EndCodeOf(context);
  D().bytes[context->card] -= kContextBytes + context->heap - 8 * kMiB;
  context->alive = false;
  D().contexts.erase(context);
  D().last_ended = context;
  if (t_current == context) t_current = nullptr;
}

Context* NewContext(int card) {
  Context* context = nullptr;
  if (D().reuse_handles) std::swap(context, D().last_ended);
  if (context == nullptr) context = new Context();
  *context = Context();
  context->card = card;
  D().contexts.insert(context);
  D().bytes[card] += kContextBytes;
  return context;
}

CUresult GetUuid(CUuuid* uuid, CUdevice device) {
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  std::memset(uuid->bytes, device + 1, 16);
  return CUDA_SUCCESS;
}
CUresult GetCount(int* count) {
  *count = kCards;
  return CUDA_SUCCESS;
}
CUresult GetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult SetCurrent(CUcontext context) {
  t_current = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}
CUresult Push(CUcontext context) {
  t_pushed.push_back(t_current);
  return SetCurrent(context);
}
CUresult Pop(CUcontext* context) {
  if (t_pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<CUcontext>(t_current);
  t_current = t_pushed.back();
  t_pushed.pop_back();
  return CUDA_SUCCESS;
}
CUresult GetDeviceOf(CUdevice* device, CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = reinterpret_cast<Context*>(context)->card;
  return CUDA_SUCCESS;
}
CUresult CreateContext(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  Lock lock(D().mutex);
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  t_current = NewContext(device);
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult CreateContextV2(CUcontext* context, unsigned flags, CUdevice device) {
  return CreateContext(context, nullptr, flags, device);
}
CUresult DestroyContext(CUcontext context) {
  Lock lock(D().mutex);
  if (D().contexts.count(reinterpret_cast<Context*>(context)) == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  for (int card = 0; card < kCards; ++card) {
    if (D().primary_references[card] > 0 &&
        reinterpret_cast<CUcontext>(D().primary[card]) == context)
      return CUDA_ERROR_INVALID_CONTEXT;
  }
  EndContext(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
CUresult Retain(CUcontext* context, CUdevice device) {
  Lock lock(D().mutex);
  if (D().primary_references[device]++ == 0) D().primary[device] = NewContext(device);
  *context = reinterpret_cast<CUcontext>(D().primary[device]);
  return CUDA_SUCCESS;
}
CUresult ReleaseRetained(CUdevice device) {
  Lock lock(D().mutex);
  if (D().primary_references[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--D().primary_references[device] == 0) EndContext(D().primary[device]);
  return CUDA_SUCCESS;
}
// A green context is a reference to the primary one; its handle is the number of its card.
CUresult CreateGreen(CUgreenCtx* green, CUdevResourceDesc, CUdevice device, unsigned) {
  Lock lock(D().mutex);
  CUcontext context = nullptr;
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  *green = reinterpret_cast<CUgreenCtx>(static_cast<std::uint64_t>(device) + 1);
  return Retain(&context, device);
}
CUdevice DeviceOf(CUgreenCtx green) {
  return static_cast<CUdevice>(reinterpret_cast<std::uint64_t>(green) - 1);
}
CUresult DestroyGreen(CUgreenCtx green) { return ReleaseRetained(DeviceOf(green)); }
CUresult FromGreen(CUcontext* context, CUgreenCtx green) {
  Lock lock(D().mutex);
  *context = reinterpret_cast<CUcontext>(D().primary[DeviceOf(green)]);
  return CUDA_SUCCESS;
}
CUresult GetState(CUdevice device, unsigned* flags, int* active) {
  Lock lock(D().mutex);
  *flags = 0;
  *active = D().primary_references[device] > 0;
  return CUDA_SUCCESS;
}
CUresult Attach(CUcontext* context, unsigned) {
  Lock lock(D().mutex);
  ++t_current->uses;
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult Detach(CUcontext handle) {
  Lock lock(D().mutex);
  auto* context = reinterpret_cast<Context*>(handle);
  if (--context->uses == 0) EndContext(context);
  return CUDA_SUCCESS;
}
CUresult GetLimit(std::size_t* value, CUlimit) {
  *value = t_current->heap;
  return CUDA_SUCCESS;
}
CUresult SetHeap(CUlimit limit, std::size_t value) {
  Lock lock(D().mutex);
  if (limit != CU_LIMIT_MALLOC_HEAP_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (value > t_current->heap) {
    D().bytes[t_current->card] += value - t_current->heap;
    t_current->heap = value;
  }
  return CUDA_SUCCESS;
}
CUresult GetInfo(std::size_t* free, std::size_t* total) {
  Lock lock(D().mutex);
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::uint64_t all = std::uint64_t{64} << 30;
  if (free != nullptr) *free = all - D().bytes[t_current->card] - D().neighbours[t_current->card];
  if (total != nullptr) *total = all;
  return free == nullptr && total == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult TotalMem(std::size_t* bytes, CUdevice device) {
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = std::uint64_t{64} << 30;
  return CUDA_SUCCESS;
}
CUresult DeviceAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 8;
  return CUDA_SUCCESS;
}

}  // namespace

void PlaceContexts() {
  real::cuDeviceGetUuid_v2 = GetUuid;
  real::cuDeviceGetCount = GetCount;
  real::cuCtxGetCurrent = GetCurrent;
  real::cuCtxSetCurrent = SetCurrent;
  real::cuCtxPushCurrent_v2 = Push;
  real::cuCtxPopCurrent_v2 = Pop;
  real::cuCtxGetDevice_v2 = Watched<Call::kGetDevice, GetDeviceOf>;
  real::cuCtxCreate_v4 = Watched<Call::kContextCreate, CreateContext>;
  real::cuCtxCreate_v2 = CreateContextV2;
  real::cuCtxDestroy_v2 = Watched<Call::kContextDestroy, DestroyContext>;
  real::cuDevicePrimaryCtxRetain = Watched<Call::kRetain, Retain>;
  real::cuDevicePrimaryCtxRelease_v2 = Watched<Call::kRelease, ReleaseRetained>;
  real::cuDevicePrimaryCtxGetState = GetState;
  real::cuGreenCtxCreate = CreateGreen;
  real::cuGreenCtxDestroy = DestroyGreen;
  real::cuCtxFromGreenCtx = FromGreen;
  real::cuMemGetInfo_v2 = GetInfo;
  real::cuDeviceTotalMem_v2 = TotalMem;
  real::cuCtxAttach = Attach;
  real::cuCtxDetach = Detach;
  real::cuCtxGetLimit = GetLimit;
  real::cuCtxSetLimit = SetHeap;
  real::cuDeviceGetAttribute = DeviceAttribute;
}

}  // namespace tessera::fence::testing::fake
