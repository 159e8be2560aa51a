// What a program can ask about an address. Boolean attributes are written as int: the CUDA runtime
// reads four bytes.
#include <cstring>
#include <set>

#include "sim/cuda/api.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/physical.h"

using namespace tessera::sim;

namespace {

// Buffers with SYNC_MEMOPS set. Guarded by MemoryLock.
std::set<std::uint64_t>& SyncBuffers() {
  static auto* buffers = new std::set<std::uint64_t>;
  return *buffers;
}

constexpr int kNoDevice = -2;  // CU_DEVICE_INVALID

template <typename T>
CUresult Put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

int OrdinalOf(const PointerInfo& info) {
  const Device* device = info.card >= 0 ? DeviceOfCard(info.card) : nullptr;
  return device ? device->ordinal : kNoDevice;
}

unsigned AllowedHandles(const PointerInfo& info) {
  return info.mapping ? info.mapping->memory->properties.requestedHandleTypes
                      : CU_MEM_HANDLE_TYPE_NONE;
}

int AccessOf(const PointerInfo& info) {
  if (!info.mapping) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  const Context* current = CurrentContextOrNull();
  return current ? info.mapping->access[current->card] : 0;
}

// MemoryLock held. `known` false: an address that the driver knows nothing of.
CUresult Get(void* data, CUpointer_attribute attribute, CUdeviceptr pointer,
             const PointerInfo& info) {
  const bool legacy_ipc = info.range && (info.range->kind == RangeKind::kBlock ||
                                         info.range->kind == RangeKind::kLarge);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(data, info.context ? info.context->handle : CUcontext{});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put(data,
                 static_cast<unsigned>(info.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Put(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!info.host && !info.managed) return CUDA_ERROR_INVALID_VALUE;
      return Put(data, pointer);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Put(data, int{SyncBuffers().count(info.id) != 0});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put(data, static_cast<unsigned long long>(info.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Put(data, int{info.managed});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put(data, OrdinalOf(info));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put(data, int{legacy_ipc});
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Put(data, static_cast<CUdeviceptr>(info.mapping ? info.range->base : info.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Put(data, static_cast<std::size_t>(info.mapping ? info.range->bytes : info.size));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Put(data, AllowedHandles(info));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Put(data, int{!info.host && !info.managed});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put(data, static_cast<unsigned>(AccessOf(info)));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put(data, info.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Put(data, static_cast<std::size_t>(info.size));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Put(data, static_cast<CUdeviceptr>(info.base));
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Put(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What the plural form says of an address that is not known: nothing, device -2.
void PutNothing(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Put(data, kNoDevice);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Put(data, 0u);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      Put(data, 0);
      break;
    default:
      Put(data, std::uint64_t{0});
  }
}

}  // namespace

SIM_API(cuPointerGetAttribute)(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(pointer, &info)) {
    // An address in a reservation is known, but nothing is mapped there.
    const Range* range = FindRange(pointer);
    const bool reserved = range && range->kind == RangeKind::kReservation;
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_MAPPED) return Put(data, 0);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
      return Put(data, static_cast<CUdeviceptr>(range->base));
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
      return Put(data, static_cast<std::size_t>(range->bytes));
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Get(data, attribute, pointer, info);
}

SIM_API(cuPointerGetAttributes)(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  if (count == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  const bool known = FindPointerLocked(pointer, &info);
  for (unsigned i = 0; i < count; ++i) {
    if (!data[i] || attributes[i] <= 0 ||
        attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
      return CUDA_ERROR_INVALID_VALUE;
    if (!known || Get(data[i], attributes[i], pointer, info) != CUDA_SUCCESS)
      PutNothing(data[i], attributes[i]);
  }
  return CUDA_SUCCESS;
}

SIM_API(cuPointerSetAttribute)(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) {
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(pointer, &info) || info.managed || info.host)
    return CUDA_ERROR_INVALID_VALUE;
  if (*static_cast<const bool*>(value))
    SyncBuffers().insert(info.id);
  else
    SyncBuffers().erase(info.id);
  return CUDA_SUCCESS;
}
