#include "sim/cuda/context.h"

#include <pthread.h>

#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

// Driver limits before anyone sets them (cuCtxGetLimit): stack 1 KiB, printf FIFO 1 MiB, heap 8
// MiB, sync depth 2, pending launches 2,048, L2 fetch 64 (CUDA C++ Programming Guide).
// Shared-memory and CIG limits are 0 outside CIG.
constexpr std::size_t kDefaultLimits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0};

// The contexts that a thread pushed, by handle: a destroyed one is noticed when it is looked up.
struct ContextStack {
  static constexpr int kDepth = 64;
  int depth;
  CUcontext entries[kDepth];
};
thread_local constinit ContextStack current{};

constinit std::atomic<std::uint64_t> next_context_id{1};
// Recursive: destructors of the runtime's data may call the driver while a primary context ends.
constinit pthread_mutex_t primary_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct PrimaryLock {
  PrimaryLock() { pthread_mutex_lock(&primary_mutex); }
  ~PrimaryLock() { pthread_mutex_unlock(&primary_mutex); }
};

constinit Context* primaries[kMaxCards] = {};

void Prepare(Context& context, const Device& device) {
  context.id = next_context_id.fetch_add(1);
  context.device = &device;
  context.card = device.card;
  for (int i = 0; i < kLimitCount && i < static_cast<int>(std::size(kDefaultLimits)); ++i)
    context.limits[i] = kDefaultLimits[i];
}

CUresult Activate(Context& context) {
  if (context.device->state->lost.load()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const int process = OwnProcess();
  if (process < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!ChargeCard(context.card, context.device->spec->context_bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  Node()->processes[process].cards[context.card].contexts.fetch_add(1);
  context.sticky = CUDA_SUCCESS;
  context.ending = false;
  context.active = true;
  return CUDA_SUCCESS;
}

// Ends everything in the context. The runtime's own data goes first: its destructors may still call
// the driver, and wait for work.
void Deactivate(Context& context) {
  SynchronizeForEnd(context);
  std::vector<LocalStorageEntry> entries;
  {
    std::lock_guard lock(context.mutex);
    entries.swap(context.local_storage);
    context.peers.clear();
  }
  for (const LocalStorageEntry& entry : entries)
    if (entry.destroy) entry.destroy(context.handle, entry.key, entry.value);
  SynchronizeForEnd(context);
  EndModulesOf(context);
  EndStreamsOf(context);
  EndMemoryOf(context);
  context.active = false;
  UnchargeCard(context.card, context.device->spec->context_bytes);
  const int process = OwnProcess();
  if (process >= 0) Node()->processes[process].cards[context.card].contexts.fetch_sub(1);
}

CUresult Create(CUcontext* handle, unsigned flags, CUdevice ordinal, unsigned api_version) {
  constexpr unsigned kKnown = CU_CTX_FLAGS_MASK;
  if (!handle || (flags & ~kKnown) || (flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (current.depth == ContextStack::kDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* context = new (std::nothrow) Context;
  if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
  Prepare(*context, *device);
  context->flags = flags;
  context->api_version = api_version;
  if (CUresult failed = Activate(*context)) {
    delete context;
    return failed;
  }
  context->handle = NewHandle(context);
  current.entries[current.depth++] = context->handle;
  *handle = context->handle;
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  PrimaryLock lock;
  Context& context = *primaries[ordinal];
  if (context.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.references == 0) Deactivate(context);
  return CUDA_SUCCESS;
}

CUresult ResetPrimary(CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  PrimaryLock lock;
  Context& context = *primaries[ordinal];
  if (!context.active) return CUDA_SUCCESS;
  // Retained references stay: the next use by a retainer needs a fresh context, which is made here.
  Deactivate(context);
  context.references = 0;
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice ordinal, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) ||
      (flags & CU_CTX_SCHED_MASK) > CU_CTX_SCHED_BLOCKING_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  primaries[ordinal]->flags = flags;
  return CUDA_SUCCESS;
}

bool OnStack(CUcontext handle) {
  return current.depth > 0 && current.entries[current.depth - 1] == handle;
}

}  // namespace

Context* CurrentContextOrNull() {
  return current.depth > 0 ? Find<Context>(current.entries[current.depth - 1]) : nullptr;
}

CUresult Usable(const Context& context) {
  if (const int error = context.sticky.load(std::memory_order_relaxed))
    return static_cast<CUresult>(error);
  if (!context.active.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context.device->state->lost.load(std::memory_order_relaxed))
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  return CUDA_SUCCESS;
}

CUresult CurrentContext(Context** context) {
  if (current.depth == 0 || !current.entries[current.depth - 1]) return CUDA_ERROR_INVALID_CONTEXT;
  *context = Find<Context>(current.entries[current.depth - 1]);
  return *context ? Usable(**context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult FindContext(CUcontext handle, Context** context) {
  if (!handle) return CurrentContext(context);
  *context = Find<Context>(handle);
  return *context ? Usable(**context) : CUDA_ERROR_INVALID_CONTEXT;
}

Context& PrimaryContext(const Device& device) { return *primaries[device.ordinal]; }

CUresult RetainPrimary(const Device& device, Context** context) {
  PrimaryLock lock;
  Context& primary = *primaries[device.ordinal];
  if (!primary.active) SIM_TRY(Activate(primary));
  ++primary.references;
  *context = &primary;
  return CUDA_SUCCESS;
}

void InitContexts() {
  for (int i = 0; i < DeviceCount(); ++i) {
    auto* context = new Context;
    Prepare(*context, *FindDevice(i));
    context->primary = true;
    context->handle = NewHandle(context);
    primaries[i] = context;
  }
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuCtxCreate)(CUcontext* context, unsigned flags, CUdevice device) {
  return Create(context, flags, device, 3010);
}
SIM_API(cuCtxCreate_v2)(CUcontext* context, unsigned flags, CUdevice device) {
  return Create(context, flags, device, 3020);
}

SIM_API(cuCtxCreate_v3)(CUcontext* context, CUexecAffinityParam* affinity, int count,
                        unsigned flags, CUdevice device) {
  if (count < 0 || (count > 0 && !affinity)) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;  // needs MPS
  return Create(context, flags, device, 3020);
}

SIM_API(cuCtxCreate_v4)(CUcontext* context, CUctxCreateParams* params, unsigned flags,
                        CUdevice device) {
  if (params && params->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params && params->cigParams) return CUDA_ERROR_NOT_SUPPORTED;  // graphics sharing
  return Create(context, flags, device, 3020);
}

SIM_API(cuCtxDestroy_v2)(CUcontext handle) {
  Context* context = Find<Context>(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (OnStack(handle)) --current.depth;
  Deactivate(*context);
  RemoveHandle<Context>(handle);
  DeleteStreamsOf(*context);
  delete context;
  return CUDA_SUCCESS;
}
SIM_API(cuCtxDestroy)(CUcontext handle) { return impl_cuCtxDestroy_v2(handle); }

SIM_API(cuCtxPushCurrent_v2)(CUcontext handle) {
  if (!Find<Context>(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (current.depth == ContextStack::kDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  current.entries[current.depth++] = handle;
  return CUDA_SUCCESS;
}
SIM_API(cuCtxPushCurrent)(CUcontext handle) { return impl_cuCtxPushCurrent_v2(handle); }

SIM_API(cuCtxPopCurrent_v2)(CUcontext* handle) {
  if (current.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --current.depth;
  if (handle) *handle = current.entries[current.depth];
  return CUDA_SUCCESS;
}
SIM_API(cuCtxPopCurrent)(CUcontext* handle) { return impl_cuCtxPopCurrent_v2(handle); }

SIM_API(cuCtxSetCurrent)(CUcontext handle) {
  if (handle && !Find<Context>(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!handle) {
    if (current.depth > 0) --current.depth;
    return CUDA_SUCCESS;
  }
  if (current.depth == 0) current.depth = 1;
  current.entries[current.depth - 1] = handle;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCurrent)(CUcontext* handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  *handle = current.depth > 0 ? current.entries[current.depth - 1] : nullptr;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice)(CUdevice* device) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = CurrentContextOrNull();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice_v2)(CUdevice* device, CUcontext handle) {
  if (!handle) return impl_cuCtxGetDevice(device);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = Find<Context>(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxRetain)(CUcontext* handle, CUdevice ordinal) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = nullptr;
  SIM_TRY(RetainPrimary(*device, &context));
  *handle = context->handle;
  return CUDA_SUCCESS;
}
SIM_API(cuDevicePrimaryCtxRelease)(CUdevice device) { return ReleasePrimary(device); }
SIM_API(cuDevicePrimaryCtxRelease_v2)(CUdevice device) { return ReleasePrimary(device); }
SIM_API(cuDevicePrimaryCtxReset)(CUdevice device) { return ResetPrimary(device); }
SIM_API(cuDevicePrimaryCtxReset_v2)(CUdevice device) { return ResetPrimary(device); }
SIM_API(cuDevicePrimaryCtxSetFlags)(CUdevice device, unsigned flags) {
  return SetPrimaryFlags(device, flags);
}
SIM_API(cuDevicePrimaryCtxSetFlags_v2)(CUdevice device, unsigned flags) {
  return SetPrimaryFlags(device, flags);
}

SIM_API(cuDevicePrimaryCtxGetState)(CUdevice ordinal, unsigned* flags, int* active) {
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = primaries[ordinal]->flags;
  *active = primaries[ordinal]->active;
  return CUDA_SUCCESS;
}
