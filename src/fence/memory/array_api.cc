// Arrays and mipmapped arrays. They have no address that a program may see, so their size is asked
// of the driver where it tells, and computed from the descriptor where it does not. Small ones
// share blocks with whatever the driver likes: once there are any, blocks are settled by its own
// figure.
#include "memory/live.h"
#include "memory/own_usage.h"
#include "memory/packed.h"
#include "memory/physical.h"
#include "memory/private_copy.h"
#include "real.h"

namespace tessera::fence {
namespace {

constexpr std::uint64_t kRowBytes = 512;        // rows are padded as those of cuMemAllocPitch
constexpr std::uint64_t kPageBytes = 64 << 10;  // arrays start on pages of 64 KiB

std::uint64_t ElementBytes(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return std::uint64_t{2} * channels;
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return 8;
    default:
      return std::uint64_t{4} * (channels == 0 ? 1 : channels);
  }
}

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t LevelBytes(std::uint64_t width, std::uint64_t height, std::uint64_t depth,
                         std::uint64_t element) {
  std::uint64_t row = 0, slice = 0, all = 0;
  if (__builtin_mul_overflow(width, element, &row) || row > kMaxAllocation) return UINT64_MAX;
  if (__builtin_mul_overflow(RoundUp(row, kRowBytes), height == 0 ? 1 : height, &slice))
    return UINT64_MAX;
  if (__builtin_mul_overflow(slice, depth == 0 ? 1 : depth, &all) || all > kMaxAllocation)
    return UINT64_MAX;
  return RoundUp(all, kPageBytes);
}

std::uint64_t BytesOf(const CUDA_ARRAY_DESCRIPTOR& d) {
  return LevelBytes(d.Width, d.Height, 1, ElementBytes(d.Format, d.NumChannels));
}
std::uint64_t BytesOf(const CUDA_ARRAY_DESCRIPTOR_v1& d) {
  return LevelBytes(d.Width, d.Height, 1, ElementBytes(d.Format, d.NumChannels));
}
template <typename Descriptor>
std::uint64_t Bytes3D(const Descriptor& d, unsigned levels) {
  // Physical memory of these comes from cuMemCreate, which is charged.
  if ((d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const std::uint64_t element = ElementBytes(d.Format, d.NumChannels);
  std::uint64_t width = d.Width, height = d.Height, depth = d.Depth, sum = 0;
  for (unsigned level = 0; level < (levels == 0 ? 1 : levels) && level < 32; ++level) {
    const std::uint64_t bytes = LevelBytes(width, height, depth, element);
    if (bytes == UINT64_MAX || __builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
    width = width > 1 ? width / 2 : width;
    height = height > 1 ? height / 2 : height;
    depth = depth > 1 && !layered && (d.Flags & CUDA_ARRAY3D_CUBEMAP) == 0 ? depth / 2 : depth;
  }
  return sum;
}

std::uint64_t Required(CUarray array, CUdevice device) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  const CUresult result = real::cuArrayGetMemoryRequirements(&requirements, array, device);
  return result == CUDA_SUCCESS ? requirements.size : 0;
}
std::uint64_t Required(CUmipmappedArray array, CUdevice device) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  const CUresult result = real::cuMipmappedArrayGetMemoryRequirements(&requirements, array, device);
  return result == CUDA_SUCCESS ? requirements.size : 0;
}

template <typename Handle, typename Create, typename Destroy>
CUresult CreateArray(Handle* out, std::uint64_t bytes, Create&& create, Destroy&& destroy) {
  const Place place = CurrentPlace();
  if (place.card == kUnknownCard || bytes == 0) return create(out);
  if (place.card == kForeignCard || bytes > kMaxAllocation) return Refuse(place.card, bytes);
  const bool small = bytes <= kShareLimit;
  if (small) NoteHiddenSmall(place.card);
  const Underway underway;
  Reservation reserved(place.card, Kind::kArray,
                       small ? PackedGrowth(place.context, bytes) : RoundToBlocks(bytes));
  if (!reserved.granted()) return Refuse(place.card, bytes);
  Handle made = nullptr;
  const CUresult result = create(&made);
  if (result != CUDA_SUCCESS) return result;
  if (const std::uint64_t required = Required(made, place.device); required != 0) bytes = required;
  Allocation entry, stale;
  entry.owner = place.context;
  entry.card = static_cast<std::uint32_t>(place.card);
  entry.kind = bytes <= kShareLimit ? kPacked : Kind::kArray;
  entry.size = entry.kind == kPacked ? bytes : RoundToBlocks(bytes);
  std::uint64_t opened = 0, stale_bytes = 0;
  const auto key = reinterpret_cast<std::uint64_t>(made);
  if (HandleTable().Insert(key, entry, &opened, &stale, &stale_bytes)) {
    if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
    std::uint64_t growth = opened;
    bool fits = true;
    if (entry.kind == kPacked) {
      while (fits && !Pack(place.context, bytes, reserved.bytes(), &growth))
        fits = reserved.Raise(growth);
    }
    if (fits && reserved.Keep(growth)) {
      if (entry.kind == kPacked) {
        NoteDoubt(place.card, kBlockBytes);
        MarkUnsettled(place.card);
      }
      *out = made;
      return CUDA_SUCCESS;
    }
    HandleTable().Take(key, &entry);
  }
  destroy(made);
  return Refuse(place.card, bytes);
}

// What is mapped into it is let go with it.
template <typename Handle>
CUresult EndWithTiles(Handle handle, CUresult (*destroy)(Handle)) {
  if (!AnyBindings()) return destroy(handle);
  const auto owner = reinterpret_cast<std::uint64_t>(handle);
  const std::uint64_t nobody = Disown(owner);
  const CUresult result = destroy(handle);
  result == CUDA_SUCCESS ? UnbindAll(nobody) : Reown(nobody, owner);
  return result;
}

template <typename Handle>
CUresult DestroyArray(Handle handle, CUresult (*destroy)(Handle)) {
  Allocation entry;
  const auto key = reinterpret_cast<std::uint64_t>(handle);
  if (!Fenced()) return destroy(handle);
  const Underway underway;
  if (!HandleTable().Take(key, &entry)) return EndWithTiles(handle, destroy);
  const CUresult result = EndWithTiles(handle, destroy);
  if (result != CUDA_SUCCESS) {
    HandleTable().PutBack(key, entry);
  } else if (entry.kind == kPacked) {
    BeforeGivingBack(static_cast<int>(entry.card));
    Refund(static_cast<int>(entry.card), Kind::kArray, Unpack(entry.owner, entry.size));
    NoteDoubt(static_cast<int>(entry.card), kBlockBytes);
    MarkUnsettled(static_cast<int>(entry.card));
  } else {
    Refund(static_cast<int>(entry.card), entry.kind, entry.size);
  }
  return result;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  if (!Fenced() || handle == nullptr || descriptor == nullptr)
    return real::cuArrayCreate_v2(handle, descriptor);
  const PrivateCopy wanted(descriptor);
  return CreateArray(
      handle, BytesOf(*wanted),
      [&](CUarray* made) { return real::cuArrayCreate_v2(made, wanted.get()); },
      real::cuArrayDestroy);
}

CUresult CUDAAPI cuArrayCreate(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR_v1* descriptor) {
  if (!Fenced() || handle == nullptr || descriptor == nullptr)
    return real::cuArrayCreate(handle, descriptor);
  const PrivateCopy wanted(descriptor);
  return CreateArray(
      handle, BytesOf(*wanted),
      [&](CUarray* made) { return real::cuArrayCreate(made, wanted.get()); }, real::cuArrayDestroy);
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  if (!Fenced() || handle == nullptr || descriptor == nullptr)
    return real::cuArray3DCreate_v2(handle, descriptor);
  const PrivateCopy wanted(descriptor);
  return CreateArray(
      handle, Bytes3D(*wanted, 1),
      [&](CUarray* made) { return real::cuArray3DCreate_v2(made, wanted.get()); },
      real::cuArrayDestroy);
}

CUresult CUDAAPI cuArray3DCreate(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor) {
  if (!Fenced() || handle == nullptr || descriptor == nullptr)
    return real::cuArray3DCreate(handle, descriptor);
  const PrivateCopy wanted(descriptor);
  return CreateArray(
      handle, Bytes3D(*wanted, 1),
      [&](CUarray* made) { return real::cuArray3DCreate(made, wanted.get()); },
      real::cuArrayDestroy);
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  return DestroyArray(handle, real::cuArrayDestroy);
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* handle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                        unsigned int levels) {
  if (!Fenced() || handle == nullptr || descriptor == nullptr) {
    return real::cuMipmappedArrayCreate(handle, descriptor, levels);
  }
  const PrivateCopy wanted(descriptor);
  return CreateArray(
      handle, Bytes3D(*wanted, levels),
      [&](CUmipmappedArray* made) {
        return real::cuMipmappedArrayCreate(made, wanted.get(), levels);
      },
      real::cuMipmappedArrayDestroy);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return DestroyArray(handle, real::cuMipmappedArrayDestroy);
}

}  // extern "C"
