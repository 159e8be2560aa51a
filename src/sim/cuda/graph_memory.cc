// Memory of graphs' allocation nodes: an address range per node, backed when a launch wants it.
#include <algorithm>
#include <atomic>
#include <map>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/in_context.h"

namespace tessera::sim {
namespace {

struct Placement {
  Context* context = nullptr;
  std::uint64_t bytes = 0;  // whole blocks
  CUmemGenericAllocationHandle memory = 0;
  unsigned references = 0;  // nodes that name it
  bool in_use = false;      // allocated by a launch and not freed
};

struct Totals {
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

// Guarded by the graph mutex.
std::map<CUdeviceptr, Placement>& Placements() {
  static auto* placements = new std::map<CUdeviceptr, Placement>;
  return *placements;
}
Totals totals[kMaxCards];
std::atomic<int> placed{0};  // so that frees in programs without such nodes look no further

void Unback(CUdeviceptr address, Placement& placement) {
  if (placement.memory == 0) return;
  InContext scope(*placement.context);
  impl_cuMemUnmap(address, placement.bytes);
  impl_cuMemRelease(placement.memory);
  placement.memory = 0;
  totals[placement.context->card].reserved -= placement.bytes;
}

void DropIfDone(CUdeviceptr address) {
  const auto found = Placements().find(address);
  if (found == Placements().end() || found->second.references != 0 || found->second.in_use) return;
  Unback(address, found->second);
  InContext scope(*found->second.context);
  impl_cuMemAddressFree(address, found->second.bytes);
  Placements().erase(found);
  placed.fetch_sub(1);
}

Placement* FindPlacement(CUdeviceptr address) {
  const auto found = Placements().find(address);
  return found == Placements().end() ? nullptr : &found->second;
}

CUmemAllocationProp PropertiesOn(const Context& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context.device->ordinal};
  return properties;
}

}  // namespace

CUresult PlaceAllocation(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  if (params.bytesize == 0 || params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      params.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Device* device = FindDevice(params.poolProps.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* home = device == context.device ? &context : &PrimaryContext(*device);
  const std::uint64_t bytes = (params.bytesize + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  std::lock_guard lock(GraphMutex());
  InContext scope(*home);
  SIM_TRY(impl_cuMemAddressReserve(&params.dptr, bytes, 0, 0, 0));
  Placement placement;
  placement.context = home;
  placement.bytes = bytes;
  Placements().emplace(params.dptr, placement);
  placed.fetch_add(1);
  return CUDA_SUCCESS;
}

void RetainPlacement(CUdeviceptr address) {
  std::lock_guard lock(GraphMutex());
  if (Placement* placement = FindPlacement(address)) ++placement->references;
}

void ForgetPlacement(CUdeviceptr address) {
  std::lock_guard lock(GraphMutex());
  Placement* placement = FindPlacement(address);
  if (placement == nullptr) return;
  if (placement->references > 0) --placement->references;
  DropIfDone(address);
}

CUresult BackAllocation(CUdeviceptr address) {
  std::lock_guard lock(GraphMutex());
  Placement* placement = FindPlacement(address);
  if (placement == nullptr || placement->in_use) return CUDA_ERROR_INVALID_VALUE;
  Totals& sum = totals[placement->context->card];
  if (placement->memory == 0) {
    InContext scope(*placement->context);
    const CUmemAllocationProp properties = PropertiesOn(*placement->context);
    SIM_TRY(impl_cuMemCreate(&placement->memory, placement->bytes, &properties, 0));
    CUresult mapped = impl_cuMemMap(address, placement->bytes, 0, placement->memory, 0);
    if (mapped == CUDA_SUCCESS) {
      const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      mapped = impl_cuMemSetAccess(address, placement->bytes, &access, 1);
    }
    if (mapped != CUDA_SUCCESS) {
      impl_cuMemRelease(placement->memory);
      placement->memory = 0;
      return mapped;
    }
    sum.reserved += placement->bytes;
    sum.reserved_high = std::max(sum.reserved_high, sum.reserved);
  }
  placement->in_use = true;
  sum.used += placement->bytes;
  sum.used_high = std::max(sum.used_high, sum.used);
  return CUDA_SUCCESS;
}

CUresult ReleaseAllocation(CUdeviceptr address) {
  std::lock_guard lock(GraphMutex());
  Placement* placement = FindPlacement(address);
  if (placement == nullptr || !placement->in_use) return CUDA_ERROR_INVALID_VALUE;
  placement->in_use = false;
  totals[placement->context->card].used -= placement->bytes;
  DropIfDone(address);
  return CUDA_SUCCESS;
}

bool IsGraphAllocation(CUdeviceptr address) {
  if (placed.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard lock(GraphMutex());
  return FindPlacement(address) != nullptr;
}

bool AllocationInUse(CUdeviceptr address) {
  std::lock_guard lock(GraphMutex());
  const Placement* placement = FindPlacement(address);
  return placement != nullptr && placement->in_use;
}

void EndGraphMemoryOf(Context& context) {
  std::lock_guard lock(GraphMutex());
  for (auto at = Placements().begin(); at != Placements().end();) {
    const CUdeviceptr address = at->first;
    Placement& placement = at->second;
    ++at;
    if (placement.context != &context) continue;
    if (placement.in_use) totals[context.card].used -= placement.bytes;
    Unback(address, placement);
    impl_cuMemAddressFree(address, placement.bytes);
    Placements().erase(address);
    placed.fetch_sub(1);
  }
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuDeviceGraphMemTrim)(CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(GraphMutex());
  for (auto& [address, placement] : Placements()) {
    if (placement.context->card == device->card && !placement.in_use) Unback(address, placement);
  }
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetGraphMemAttribute)(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  const Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  const Totals& sum = totals[device->card];
  auto& out = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      out = sum.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      out = sum.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      out = sum.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      out = sum.reserved_high;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuDeviceSetGraphMemAttribute)(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  const Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(GraphMutex());
  Totals& sum = totals[device->card];
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    sum.used_high = sum.used;
  } else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    sum.reserved_high = sum.reserved;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
