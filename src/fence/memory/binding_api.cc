// Physical memory that is not mapped at an address: tiles of sparse arrays and multicast objects.
// They refer to it as mappings do: the driver frees it with the last of them.
#include <cstring>

#include "memory/live.h"
#include "memory/physical.h"
#include "os/os.h"
#include "real.h"

namespace tessera::fence {
namespace {

std::uint64_t Mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xd6e8feb86659fd93u;
  return hash ^ hash >> 32;
}

// The same for the same region of an array only.
std::uint64_t PlaceOfTiles(const CUarrayMapInfo& info) {
  std::uint64_t hash = Mix(1, info.subresourceType);
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    const auto& tail = info.subresource.miptail;
    return Mix(Mix(Mix(hash, tail.layer), tail.offset), tail.size);
  }
  const auto& level = info.subresource.sparseLevel;
  for (const unsigned word : {level.level, level.layer, level.offsetX, level.offsetY, level.offsetZ,
                              level.extentWidth, level.extentHeight, level.extentDepth})
    hash = Mix(hash, word);
  return hash;
}

std::uint64_t OwnerOfTiles(const CUarrayMapInfo& info) {
  return info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
             ? reinterpret_cast<std::uint64_t>(info.resource.mipmap)
             : reinterpret_cast<std::uint64_t>(info.resource.array);
}

bool Maps(const CUarrayMapInfo& info) { return info.memOperationType == CU_MEM_OPERATION_TYPE_MAP; }

CUresult MapArray(CUarrayMapInfo* program_list, unsigned count, CUstream stream,
                  std::uint64_t number, decltype(real::cuMemMapArrayAsync) map) {
  constexpr unsigned kMost = 1 << 20;
  if (!Fenced() || program_list == nullptr || count == 0) return map(program_list, count, stream);
  // A copy of the list, for the reason of private_copy.h, and what of it is held.
  const std::size_t bytes = count * (sizeof(CUarrayMapInfo) + sizeof(std::uint32_t));
  auto* list = count > kMost ? nullptr : static_cast<CUarrayMapInfo*>(os::MapPrivate(bytes));
  if (list == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* held = reinterpret_cast<std::uint32_t*>(list + count);
  std::memcpy(list, program_list, count * sizeof *list);
  for (unsigned i = 0; i < count; ++i)
    held[i] = Maps(list[i]) ? HoldPhysical(list[i].memHandle.memHandle) : 0;
  const std::uint32_t context = CurrentPlace().context;
  const CUresult result = map(list, count, stream);
  for (unsigned i = 0; i < count; ++i) {
    if (result != CUDA_SUCCESS) {
      LetGo(held[i]);
    } else if (Maps(list[i])) {
      Bind(OwnerOfTiles(list[i]), PlaceOfTiles(list[i]), held[i], context);
    } else {
      UnbindLater(OwnerOfTiles(list[i]), PlaceOfTiles(list[i]), number);
    }
  }
  os::Unmap(list, bytes);
  return result;
}

// Bindings of one object are told apart by offset and card, as the call that undoes them does.
std::uint64_t PlaceOfBinding(std::uint64_t offset, int card) {
  return Mix(Mix(2, offset), static_cast<std::uint64_t>(card));
}

CUresult BindTo(CUmemGenericAllocationHandle object, std::uint64_t offset, std::uint32_t record,
                CUresult result) {
  if (result == CUDA_SUCCESS) {
    Bind(OwnerOfMulticast(object), PlaceOfBinding(offset, CardOfPhysical(record)), record, 0);
  } else {
    LetGo(record);
  }
  return result;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return MapArray(list, count, stream, StreamNumber(stream, 1), real::cuMemMapArrayAsync);
}
CUresult CUDAAPI cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned int count,
                                         CUstream stream) {
  return MapArray(list, count, stream, StreamNumber(stream, 2), real::cuMemMapArrayAsync_ptsz);
}

CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle* object,
                                   const CUmulticastObjectProp* properties) {
  if (!Fenced() || object == nullptr) return real::cuMulticastCreate(object, properties);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = real::cuMulticastCreate(&made, properties);
  if (result != CUDA_SUCCESS) return result;
  AddPhysical(made, kForeignCard, 0);
  *object = made;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                                    CUmemGenericAllocationHandle memory, size_t memory_offset,
                                    size_t size, unsigned long long flags) {
  if (!Fenced())
    return real::cuMulticastBindMem(object, offset, memory, memory_offset, size, flags);
  const std::uint32_t record = HoldPhysical(memory);
  return BindTo(object, offset, record,
                real::cuMulticastBindMem(object, offset, memory, memory_offset, size, flags));
}
CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                                     CUdeviceptr pointer, size_t size, unsigned long long flags) {
  if (!Fenced()) return real::cuMulticastBindAddr(object, offset, pointer, size, flags);
  const std::uint32_t record = HoldMapped(pointer);
  return BindTo(object, offset, record,
                real::cuMulticastBindAddr(object, offset, pointer, size, flags));
}
CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device,
                                   size_t offset, size_t size) {
  const CUresult result = real::cuMulticastUnbind(object, device, offset, size);
  if (result == CUDA_SUCCESS && Fenced())
    Unbind(OwnerOfMulticast(object), PlaceOfBinding(offset, CardOfDevice(device)));
  return result;
}

}  // extern "C"
