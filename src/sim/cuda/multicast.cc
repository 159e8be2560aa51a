#include "sim/cuda/multicast.h"

#include <algorithm>
#include <new>
#include <set>
#include <vector>

#include "sim/cuda/api.h"
#include "sim/cuda/architecture.h"

namespace tessera::sim {
namespace {

struct Binding {
  int card;
  std::uint64_t offset, size;
  Physical* memory;
};

struct Multicast {
  static constexpr HandleKind kKind = HandleKind::kMulticast;
  using Handle = CUmemGenericAllocationHandle;

  CUmulticastObjectProp properties{};
  std::set<int> cards;
  std::vector<Binding> bindings;
};

bool Supported(const Device& device) {
  return AttributeOf(*device.spec, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
}

bool AnySupported() {
  for (int i = 0; i < DeviceCount(); ++i)
    if (Supported(*FindDevice(i))) return true;
  return false;
}

CUresult CheckProperties(const CUmulticastObjectProp* properties) {
  if (!properties || properties->numDevices == 0 || properties->size == 0 || properties->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes &
      ~static_cast<unsigned long long>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    return CUDA_ERROR_NOT_SUPPORTED;
  return AnySupported() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult Bind(Multicast& object, std::uint64_t offset, Physical& memory, std::uint64_t size) {
  if (size == 0 || offset % kUnit || size % kUnit || offset > object.properties.size ||
      size > object.properties.size - offset)
    return CUDA_ERROR_INVALID_VALUE;
  if (object.cards.size() != object.properties.numDevices)
    return CUDA_ERROR_ILLEGAL_STATE;  // documented: all devices first
  if (!object.cards.count(memory.card)) return CUDA_ERROR_INVALID_DEVICE;
  for (const Binding& binding : object.bindings)
    if (binding.card == memory.card && offset < binding.offset + binding.size &&
        binding.offset < offset + size)
      return CUDA_ERROR_INVALID_VALUE;
  ++memory.uses;
  object.bindings.push_back({memory.card, offset, size, &memory});
  return CUDA_SUCCESS;
}

}  // namespace

bool ReleaseMulticast(CUmemGenericAllocationHandle handle) {
  Multicast* object = RemoveHandle<Multicast>(handle);
  if (!object) return false;
  for (const Binding& binding : object->bindings) DropUse(*binding.memory);
  delete object;
  return true;
}

Physical* BoundMemory(CUmemGenericAllocationHandle handle) {
  const Multicast* object = Find<Multicast>(handle);
  return object && !object->bindings.empty() ? object->bindings.front().memory : nullptr;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuMulticastCreate)(CUmemGenericAllocationHandle* handle,
                           const CUmulticastObjectProp* properties) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(CheckProperties(properties));
  if (properties->size % kUnit) return CUDA_ERROR_INVALID_VALUE;
  auto* object = new (std::nothrow) Multicast;
  if (!object) return CUDA_ERROR_OUT_OF_MEMORY;
  object->properties = *properties;
  *handle = NewHandle(object);
  return CUDA_SUCCESS;
}

SIM_API(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!Supported(*device)) return CUDA_ERROR_NOT_SUPPORTED;
  MemoryLock lock;
  Multicast* object = Find<Multicast>(handle);
  if (!object || object->cards.size() >= object->properties.numDevices)
    return CUDA_ERROR_INVALID_VALUE;
  return object->cards.insert(device->card).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMulticastBindMem)(CUmemGenericAllocationHandle handle, std::size_t offset,
                            CUmemGenericAllocationHandle memory_handle, std::size_t memory_offset,
                            std::size_t size, unsigned long long flags) {
  MemoryLock lock;
  Multicast* object = Find<Multicast>(handle);
  Physical* memory = Find<Physical>(memory_handle);
  if (!object || !memory || flags != 0 || memory_offset % kUnit || memory_offset > memory->size ||
      size > memory->size - memory_offset)
    return CUDA_ERROR_INVALID_VALUE;
  return Bind(*object, offset, *memory, size);
}

SIM_API(cuMulticastBindAddr)(CUmemGenericAllocationHandle handle, std::size_t offset,
                             CUdeviceptr pointer, std::size_t size, unsigned long long flags) {
  MemoryLock lock;
  Multicast* object = Find<Multicast>(handle);
  PointerInfo info;
  if (!object || flags != 0 || !FindPointerLocked(pointer, &info) || !info.mapping ||
      size > info.base + info.size - pointer)
    return CUDA_ERROR_INVALID_VALUE;
  return Bind(*object, offset, *info.mapping->memory, size);
}

SIM_API(cuMulticastUnbind)(CUmemGenericAllocationHandle handle, CUdevice ordinal,
                           std::size_t offset, std::size_t size) {
  const Device* device = FindDevice(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  MemoryLock lock;
  Multicast* object = Find<Multicast>(handle);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  const auto found =
      std::find_if(object->bindings.begin(), object->bindings.end(), [&](const Binding& b) {
        return b.card == device->card && b.offset == offset && b.size == size;
      });
  if (found == object->bindings.end()) return CUDA_ERROR_INVALID_VALUE;
  DropUse(*found->memory);
  object->bindings.erase(found);
  return CUDA_SUCCESS;
}

SIM_API(cuMulticastGetGranularity)(std::size_t* granularity,
                                   const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags option) {
  if (!granularity || (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
                       option != CU_MULTICAST_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(CheckProperties(properties));
  *granularity = kUnit;
  return CUDA_SUCCESS;
}
