#include "sim/cuda/vmm.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "sim/cuda/api.h"
#include "sim/cuda/multicast.h"
#include "sim/cuda/physical.h"

namespace tessera::sim {
namespace {

struct Reservation : Range {
  std::map<std::uint64_t, std::unique_ptr<Mapping>> mappings;  // by address
};

// The reservation that holds all of [base, base + bytes), or nullptr.
Reservation* Holder(std::uint64_t base, std::uint64_t bytes) {
  Range* range = FindRange(base);
  if (!range || range->kind != RangeKind::kReservation || bytes > range->base + range->bytes - base)
    return nullptr;
  return static_cast<Reservation*>(range);
}

// The mappings that make up exactly [base, base + bytes) without a gap; empty when they do not.
std::vector<Mapping*> Cover(Reservation& reservation, std::uint64_t base, std::uint64_t bytes) {
  std::vector<Mapping*> found;
  std::uint64_t at = base;
  for (auto it = reservation.mappings.find(base); at < base + bytes; ++it) {
    if (it == reservation.mappings.end() || it->first != at) return {};
    found.push_back(it->second.get());
    at += it->second->size;
  }
  return at == base + bytes ? found : std::vector<Mapping*>{};
}

void HideMapping(const Mapping& mapping) {
  mmap(reinterpret_cast<void*>(mapping.base), mapping.size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

bool FindMapping(Range& range, std::uint64_t address, PointerInfo* info) {
  auto& reservation = static_cast<Reservation&>(range);
  auto it = reservation.mappings.upper_bound(address);
  if (it == reservation.mappings.begin()) return false;
  Mapping& mapping = *std::prev(it)->second;
  if (address - mapping.base >= mapping.size) return false;
  int access = mapping.host_access;
  for (int card_access : mapping.access) access |= card_access;
  info->base = mapping.base;
  info->size = mapping.size;
  info->card = mapping.memory->card;
  info->id = mapping.memory->id;
  info->dirty = &mapping.memory->dirty;
  info->readable = access != 0;
  info->writable = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  info->mapping = &mapping;
  return true;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuMemGetAllocationGranularity)(std::size_t* granularity,
                                       const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  int card = -1;
  if (!granularity || !properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
       option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  if (!CardOfLocation(properties->location, &card))
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                    : CUDA_ERROR_INVALID_VALUE;
  *granularity = kUnit;
  return CUDA_SUCCESS;
}

SIM_API(cuMemAddressReserve)(CUdeviceptr* pointer, std::size_t size, std::size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
  if (!pointer || size == 0 || size % kUnit || (alignment & (alignment - 1)) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto reservation = std::unique_ptr<Reservation>(new (std::nothrow) Reservation);
  MemoryLock lock;
  const std::uint64_t base = reservation ? ReserveAddresses(size, alignment, wanted) : 0;
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  reservation->kind = RangeKind::kReservation;
  reservation->shared = true;
  reservation->base = base;
  reservation->bytes = reservation->size = size;
  *pointer = base;
  PublishRange(*reservation.release());
  return CUDA_SUCCESS;
}

SIM_API(cuMemAddressFree)(CUdeviceptr pointer, std::size_t size) {
  MemoryLock lock;
  Reservation* reservation = Holder(pointer, size);
  if (!reservation || reservation->base != pointer || reservation->bytes != size ||
      !reservation->mappings.empty())
    return CUDA_ERROR_INVALID_VALUE;
  WithdrawRange(*reservation);
  GiveAddresses(pointer, size, true);
  delete reservation;
  return CUDA_SUCCESS;
}

SIM_API(cuMemCreate)(CUmemGenericAllocationHandle* handle, std::size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  int card = -1;
  if (!handle || !properties || size == 0 || flags != 0 ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->win32HandleMetaData)
    return CUDA_ERROR_INVALID_VALUE;
  if (!CardOfLocation(properties->location, &card))
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                    : CUDA_ERROR_INVALID_VALUE;
  if (size % kUnit) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result;
  {
    MemoryLock lock;
    Physical* memory = nullptr;
    result = MakePhysical(*properties, card, size, &memory);
    if (result == CUDA_SUCCESS) *handle = memory->handle;
  }
  if (result == CUDA_SUCCESS) SpendHostTime(Node()->costs.vmm_create_ns_per_block, size);
  return result;
}

SIM_API(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  MemoryLock lock;
  if (ReleaseMulticast(handle)) return CUDA_SUCCESS;
  Physical* memory = Find<Physical>(handle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  DropReference(*memory);
  SweepExports();
  return CUDA_SUCCESS;
}

SIM_API(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(reinterpret_cast<std::uint64_t>(address), &info) || !info.mapping)
    return CUDA_ERROR_INVALID_VALUE;
  Physical& memory = *info.mapping->memory;
  if (memory.references++ == 0) memory.handle = NewHandle(&memory);
  *handle = memory.handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMemMap)(CUdeviceptr pointer, std::size_t size, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (size == 0 || pointer % kUnit || size % kUnit || offset % kUnit || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  {
    MemoryLock lock;
    Physical* memory = Find<Physical>(handle);
    if (!memory) memory = BoundMemory(handle);
    Reservation* reservation = Holder(pointer, size);
    if (!memory || !reservation || offset > memory->size || size > memory->size - offset)
      return CUDA_ERROR_INVALID_VALUE;
    const auto next = reservation->mappings.lower_bound(pointer);
    if (next != reservation->mappings.end() && next->first < pointer + size)
      return CUDA_ERROR_INVALID_VALUE;
    if (next != reservation->mappings.begin()) {
      const Mapping& before = *std::prev(next)->second;
      if (before.base + before.size > pointer) return CUDA_ERROR_INVALID_VALUE;
    }
    auto mapping = std::make_unique<Mapping>();
    mapping->base = pointer;
    mapping->size = size;
    mapping->offset = offset;
    mapping->memory = memory;
    if (!ShowMapping(*mapping)) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->mappings.insert(mapping.get());
    ++memory->uses;
    reservation->mappings.emplace(pointer, std::move(mapping));
  }
  SpendHostTime(Node()->costs.vmm_map_ns_per_block, size);
  return CUDA_SUCCESS;
}

SIM_API(cuMemUnmap)(CUdeviceptr pointer, std::size_t size) {
  {
    MemoryLock lock;
    Reservation* reservation = Holder(pointer, size);
    const std::vector<Mapping*> mappings =
        reservation && size ? Cover(*reservation, pointer, size) : std::vector<Mapping*>{};
    if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (Mapping* mapping : mappings) {
      Physical& memory = *mapping->memory;
      HideMapping(*mapping);
      memory.mappings.erase(mapping);
      reservation->mappings.erase(mapping->base);
      DropUse(memory);
    }
    SweepExports();
  }
  SpendHostTime(Node()->costs.vmm_unmap_ns_per_block, size);
  return CUDA_SUCCESS;
}

SIM_API(cuMemSetAccess)(CUdeviceptr pointer, std::size_t size, const CUmemAccessDesc* list,
                        std::size_t count) {
  if (!list || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  {
    MemoryLock lock;
    Reservation* reservation = Holder(pointer, size);
    const std::vector<Mapping*> mappings =
        reservation ? Cover(*reservation, pointer, size) : std::vector<Mapping*>{};
    if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      int card = -1;
      if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
          list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
      if (!CardOfLocation(list[i].location, &card)) return CUDA_ERROR_INVALID_DEVICE;
      for (const Mapping* mapping : mappings)
        if (card >= 0 && mapping->memory->card >= 0 && card != mapping->memory->card &&
            Node()->specs[card].link_type[mapping->memory->card] == 0)
          return CUDA_ERROR_INVALID_DEVICE;
    }
    for (Mapping* mapping : mappings) {
      for (std::size_t i = 0; i < count; ++i) {
        int card = -1;
        CardOfLocation(list[i].location, &card);
        (card >= 0 ? mapping->access[card] : mapping->host_access) = list[i].flags;
      }
      if (!ShowMapping(*mapping)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  SpendHostTime(Node()->costs.vmm_access_ns_per_block, size);
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAccess)(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) {
  int card = -1;
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  if (!CardOfLocation(*location, &card)) return CUDA_ERROR_INVALID_DEVICE;
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(pointer, &info) || !info.mapping) return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<unsigned long long>(card >= 0 ? info.mapping->access[card]
                                                     : info.mapping->host_access);
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle)(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  const Physical* memory = Find<Physical>(handle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  *properties = memory->properties;
  return CUDA_SUCCESS;
}

SIM_API(cuMemExportToShareableHandle)(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  if (!shareable || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  MemoryLock lock;
  Physical* memory = Find<Physical>(handle);
  if (!memory || !(memory->properties.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
  return ExportPhysical(*memory, static_cast<int*>(shareable));
}

SIM_API(cuMemImportFromShareableHandle)(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  MemoryLock lock;
  Physical* memory = nullptr;
  SIM_TRY(ImportPhysical(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)), &memory));
  *handle = memory->handle;
  return CUDA_SUCCESS;
}
