#include "sim/cuda/green_context.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/event.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

std::atomic<std::uint64_t> next_green_id{1};

struct ResourceDesc {
  static constexpr HandleKind kKind = HandleKind::kResourceDesc;
  using Handle = CUdevResourceDesc;
  unsigned sm_count = 0;
};

// Multiprocessors are parted in eights from compute capability 9.0 on, in twos (of at least four)
// before.
unsigned Step(const Device& device) { return device.spec->cc_major >= 9 ? 8 : 2; }
unsigned Least(const Device& device) { return device.spec->cc_major >= 9 ? 8 : 4; }

CUresult WholeDevice(const Device& device, CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  std::memset(resource, 0, sizeof(*resource));
  resource->type = type;
  resource->sm.smCount = device.spec->sm_count;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuDeviceGetDevResource)(CUdevice ordinal, CUdevResource* resource, CUdevResourceType type) {
  const Device* device = FindDevice(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : WholeDevice(*device, resource, type);
}

SIM_API(cuCtxGetDevResource)(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  Context* context = nullptr;
  SIM_TRY(FindContext(handle, &context));
  return WholeDevice(*context->device, resource, type);
}

SIM_API(cuDevSmResourceSplitByCount)(CUdevResource* result, unsigned* groups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned flags, unsigned least) {
  if (groups == nullptr || input == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const Device* device = FindDevice(0);
  if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
  const unsigned step = Step(*device);
  const unsigned each = std::max(Least(*device), (std::max(least, 1u) + step - 1) / step * step);
  const unsigned fit = input->sm.smCount / each;
  if (fit == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result == nullptr) {
    *groups = fit;
    return CUDA_SUCCESS;
  }
  *groups = std::min(*groups, fit);
  for (unsigned i = 0; i < *groups; ++i) {
    result[i] = *input;
    result[i].sm.smCount = each;
  }
  if (remaining != nullptr) {
    *remaining = *input;
    remaining->sm.smCount = input->sm.smCount - *groups * each;
    if (remaining->sm.smCount == 0) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuDevResourceGenerateDesc)(CUdevResourceDesc* handle, CUdevResource* resources,
                                   unsigned count) {
  if (handle == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* desc = new ResourceDesc;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) {
      delete desc;
      return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    desc->sm_count += resources[i].sm.smCount;
  }
  *handle = NewHandle(desc);
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxCreate)(CUgreenCtx* handle, CUdevResourceDesc desc_handle, CUdevice ordinal,
                          unsigned flags) {
  const Device* device = FindDevice(ordinal);
  ResourceDesc* desc = Find<ResourceDesc>(desc_handle);
  if (handle == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (desc == nullptr || desc->sm_count > device->spec->sm_count) return CUDA_ERROR_INVALID_VALUE;
  auto* green = new GreenContext;
  const CUresult retained = RetainPrimary(*device, &green->context);
  if (retained != CUDA_SUCCESS) {
    delete green;
    return retained;
  }
  green->id = next_green_id.fetch_add(1);
  green->sm_count = desc->sm_count;
  green->handle = NewHandle(green);
  *handle = green->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxDestroy)(CUgreenCtx handle) {
  GreenContext* green = RemoveHandle<GreenContext>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ForEach<Stream>([&](Stream* stream) {
    if (stream->green == green) stream->green = nullptr;
  });
  const CUdevice device = green->context->device->ordinal;
  delete green;
  return impl_cuDevicePrimaryCtxRelease_v2(device);
}

// The context that takes its place is the primary one: work of both shares the card's engines.
SIM_API(cuCtxFromGreenCtx)(CUcontext* context, CUgreenCtx handle) {
  GreenContext* green = Find<GreenContext>(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = green->context->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxGetDevResource)(CUgreenCtx handle, CUdevResource* resource,
                                  CUdevResourceType type) {
  GreenContext* green = Find<GreenContext>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  SIM_TRY(WholeDevice(*green->context->device, resource, type));
  resource->sm.smCount = green->sm_count;
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxGetId)(CUgreenCtx handle, unsigned long long* id) {
  GreenContext* green = Find<GreenContext>(handle);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = green->id;
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxRecordEvent)(CUgreenCtx handle, CUevent event) {
  GreenContext* green = Find<GreenContext>(handle);
  return green == nullptr ? CUDA_ERROR_INVALID_HANDLE
                          : impl_cuCtxRecordEvent(green->context->handle, event);
}

SIM_API(cuGreenCtxWaitEvent)(CUgreenCtx handle, CUevent event) {
  GreenContext* green = Find<GreenContext>(handle);
  return green == nullptr ? CUDA_ERROR_INVALID_HANDLE
                          : impl_cuCtxWaitEvent(green->context->handle, event);
}

SIM_API(cuGreenCtxStreamCreate)(CUstream* stream, CUgreenCtx handle, unsigned flags, int priority) {
  GreenContext* green = Find<GreenContext>(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & CU_STREAM_NON_BLOCKING) == 0) return CUDA_ERROR_INVALID_VALUE;
  return MakeStream(*green->context, flags, priority, green, stream);
}

SIM_API(cuStreamGetGreenCtx)(CUstream handle, CUgreenCtx* green) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = stream->green != nullptr ? stream->green->handle : nullptr;
  return CUDA_SUCCESS;
}
