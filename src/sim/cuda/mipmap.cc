#include "sim/cuda/mipmap.h"

#include <algorithm>
#include <bit>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/physical.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kTileBytes = 64 * 1024;  // sparse arrays are mapped in tiles of 64 KiB

void DestroyMipmap(Mipmap& mipmap) {
  for (Array* level : mipmap.levels) {
    level->owns_memory = false;
    DestroyArray(*level);
  }
  RemoveHandle<Mipmap>(mipmap.handle);
  if (mipmap.owns_memory) FreeDevice(mipmap.memory);
  if (mipmap.deferred && mipmap.memory) ReturnPages(mipmap.memory, mipmap.bytes);
  DropTiles(mipmap.tiles);
  delete &mipmap;
}

CUDA_ARRAY3D_DESCRIPTOR LevelOf(CUDA_ARRAY3D_DESCRIPTOR d, unsigned level) {
  d.Width = std::max<std::size_t>(1, d.Width >> level);
  if (d.Height) d.Height = std::max<std::size_t>(1, d.Height >> level);
  if (d.Depth && !(d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
    d.Depth = std::max<std::size_t>(1, d.Depth >> level);
  return d;
}

}  // namespace

CUresult MakeMipmap(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels,
                    CUdeviceptr memory, std::uint64_t memory_bytes, CUmipmappedArray* handle) {
  const std::size_t largest = std::max({descriptor.Width, descriptor.Height, descriptor.Depth});
  levels = std::min<unsigned>(
      levels, static_cast<unsigned>(std::bit_width(largest)));  // more are clamped, as documented
  if (levels == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* mipmap = new (std::nothrow) Mipmap;
  if (!mipmap) return CUDA_ERROR_OUT_OF_MEMORY;
  mipmap->context = &context;
  mipmap->descriptor = descriptor;
  CUresult result = CUDA_SUCCESS;
  std::vector<std::uint64_t> offsets;
  for (unsigned i = 0; i < levels && result == CUDA_SUCCESS; ++i) {
    auto* level = new (std::nothrow) Array;
    result = level ? LayOut(LevelOf(descriptor, i), level) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!level) break;
    level->context = &context;
    level->parent = mipmap;
    level->handle = NewHandle(level);
    offsets.push_back(mipmap->bytes);
    mipmap->bytes += level->bytes;
    mipmap->levels.push_back(level);
  }
  const bool deferred = descriptor.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
  if (result == CUDA_SUCCESS && memory && memory_bytes < mipmap->bytes)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && !memory && !deferred) {
    result = AllocateDevice(context, mipmap->bytes, &mipmap->memory);
    mipmap->owns_memory = result == CUDA_SUCCESS;
    memory = mipmap->memory;
  }
  if (result == CUDA_SUCCESS && deferred) {
    mipmap->deferred = true;
    memory = mipmap->memory = DeferredPages(mipmap->bytes);
    if (!memory) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  mipmap->handle = NewHandle(mipmap);
  if (result != CUDA_SUCCESS) {
    DestroyMipmap(*mipmap);
    return result;
  }
  mipmap->memory = memory;
  for (std::size_t i = 0; i < mipmap->levels.size(); ++i) {
    mipmap->levels[i]->memory = memory + offsets[i];
    mipmap->levels[i]->deferred = deferred;
  }
  *handle = mipmap->handle;
  return CUDA_SUCCESS;
}

void EndMipmapsOf(Context& context) {
  ForEach<Mipmap>([&](Mipmap* mipmap) {
    if (mipmap->context == &context) DestroyMipmap(*mipmap);
  });
}

CUresult SparseProperties(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, std::uint64_t element_bytes,
                          unsigned levels, CUDA_ARRAY_SPARSE_PROPERTIES* properties) {
  if (!(descriptor.Flags & CUDA_ARRAY3D_SPARSE)) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  // A tile is as square as its 64 KiB allow.
  const auto elements = static_cast<unsigned>(std::bit_floor(kTileBytes / element_bytes));
  const unsigned width = 1u << (std::bit_width(elements) / 2);
  properties->tileExtent.width = width;
  properties->tileExtent.height = elements / width;
  properties->tileExtent.depth = 1;
  properties->miptailFirstLevel = levels;  // no packed tail: every level is made of tiles
  return CUDA_SUCCESS;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuMipmappedArrayCreate)(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  if (!handle || !descriptor) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  return MakeMipmap(*context, *descriptor, levels, 0, 0, handle);
}

SIM_API(cuMipmappedArrayDestroy)(CUmipmappedArray handle) {
  Mipmap* mipmap = Find<Mipmap>(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  SIM_TRY(SynchronizeContext(*mipmap->context));
  DestroyMipmap(*mipmap);
  return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayGetLevel)(CUarray* level, CUmipmappedArray handle, unsigned index) {
  const Mipmap* mipmap = Find<Mipmap>(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  if (!level || index >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *level = mipmap->levels[index]->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayGetMemoryRequirements)(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements,
                                               CUmipmappedArray handle, CUdevice ordinal) {
  const Mipmap* mipmap = Find<Mipmap>(handle);
  if (!requirements) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  *requirements = {};
  const bool deferred = mipmap->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING;
  requirements->size = RoundUp(mipmap->bytes, deferred ? kUnit : 1);
  requirements->alignment = deferred ? kUnit : 64 * 1024;
  return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayGetSparseProperties)(CUDA_ARRAY_SPARSE_PROPERTIES* properties,
                                             CUmipmappedArray handle) {
  const Mipmap* mipmap = Find<Mipmap>(handle);
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  return SparseProperties(mipmap->descriptor, mipmap->levels[0]->element_bytes,
                          static_cast<unsigned>(mipmap->levels.size()), properties);
}

// Maps physical memory behind tiles of sparse arrays, or behind a whole deferred array. The layout
// of arrays is opaque, so only the references count: the memory stays in use (and charged) while it
// is mapped here.
SIM_API(cuMemMapArrayAsync)(CUarrayMapInfo* list, unsigned count, CUstream handle) {
  if (!list || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  MemoryLock lock;
  for (unsigned i = 0; i < count; ++i) {
    const CUarrayMapInfo& info = list[i];
    std::map<std::uint64_t, Physical*>* tiles = nullptr;
    unsigned flags = 0;
    if (info.resourceType == CU_RESOURCE_TYPE_ARRAY) {
      if (Array* array = Find<Array>(info.resource.array))
        tiles = &array->tiles, flags = array->descriptor.Flags;
    } else if (info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
      if (Mipmap* mipmap = Find<Mipmap>(info.resource.mipmap))
        tiles = &mipmap->tiles, flags = mipmap->descriptor.Flags;
    }
    if (!tiles) return CUDA_ERROR_INVALID_HANDLE;
    if (!(flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) ||
        info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC)
      return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t place = info.offset;
    if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) {
      const auto& at = info.subresource.sparseLevel;
      place = std::uint64_t{at.level} << 56 | std::uint64_t{at.layer} << 44 |
              std::uint64_t{at.offsetZ} << 32 | std::uint64_t{at.offsetY & 0xFFFF} << 16 |
              (at.offsetX & 0xFFFF);
    }
    Physical* memory = info.memOperationType == CU_MEM_OPERATION_TYPE_MAP
                           ? Find<Physical>(info.memHandle.memHandle)
                           : nullptr;
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_MAP && !memory)
      return CUDA_ERROR_INVALID_HANDLE;
    const auto before = tiles->find(place);
    if (memory) ++memory->uses;
    if (before != tiles->end()) {
      DropUse(*before->second);
      tiles->erase(before);
    }
    if (memory) tiles->emplace(place, memory);
  }
  return CUDA_SUCCESS;
}
