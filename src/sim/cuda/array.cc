#include "sim/cuda/array.h"

#include <algorithm>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/mipmap.h"
#include "sim/cuda/physical.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kRowAlignment = 512;  // as cuMemAllocPitch
constexpr unsigned kKnownFlags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
    CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
    CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

bool WithoutMemory(unsigned flags) {
  return flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

}  // namespace

std::uint64_t ElementBytes(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4 * channels;
    case CU_AD_FORMAT_NV12:
      return 1;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
      return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
      return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
      return 4;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 8;
    // Block compression: bytes of a 4 x 4 block, by quarter rows.
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return 8;
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
      return 16;
    default:
      return 0;
  }
}

CUresult LayOut(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Array* array) {
  if (descriptor.Width == 0 || (descriptor.Flags & ~kKnownFlags)) return CUDA_ERROR_INVALID_VALUE;
  if (descriptor.NumChannels != 1 && descriptor.NumChannels != 2 && descriptor.NumChannels != 4 &&
      descriptor.Format != CU_AD_FORMAT_NV12)
    return CUDA_ERROR_INVALID_VALUE;
  if ((descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) &&
      (descriptor.Width != descriptor.Height || descriptor.Depth % 6))
    return CUDA_ERROR_INVALID_VALUE;
  array->descriptor = descriptor;
  array->element_bytes = ElementBytes(descriptor.Format, descriptor.NumChannels);
  if (array->element_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (descriptor.Width > (1u << 27) || descriptor.Height > (1u << 17) ||
      descriptor.Depth > (1u << 15))
    return CUDA_ERROR_INVALID_VALUE;
  array->rows = std::max<std::uint64_t>(1, descriptor.Height);
  array->slices = std::max<std::uint64_t>(1, descriptor.Depth);
  if (descriptor.Format == CU_AD_FORMAT_NV12)
    array->rows = array->rows * 3 / 2;  // the chroma plane below
  array->row_bytes = RoundUp(array->element_bytes * descriptor.Width, kRowAlignment);
  array->bytes = RoundUp(array->row_bytes * array->rows * array->slices,
                         64 * 1024);  // arrays start on 64 KiB pages
  return CUDA_SUCCESS;
}

CUresult MakeArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* handle) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  Array laid_out;
  SIM_TRY(LayOut(descriptor, &laid_out));
  auto* array = new (std::nothrow) Array(laid_out);
  if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
  array->context = context;
  array->deferred = WithoutMemory(descriptor.Flags);
  if (array->deferred) {
    array->memory = DeferredPages(array->bytes);
    if (!array->memory) {
      delete array;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  } else {
    if (CUresult failed = AllocateDevice(*context, array->bytes, &array->memory)) {
      delete array;
      return failed;
    }
    array->owns_memory = true;
  }
  *handle = array->handle = NewHandle(array);
  return CUDA_SUCCESS;
}

void DestroyArray(Array& array) {
  for (Array* plane : array.planes)
    if (plane) DestroyArray(*plane);
  RemoveHandle<Array>(array.handle);
  if (array.owns_memory) FreeDevice(array.memory);
  if (array.deferred && !array.parent && !array.is_plane) ReturnPages(array.memory, array.bytes);
  DropTiles(array.tiles);
  delete &array;
}

CUdeviceptr DeferredPages(std::uint64_t bytes) {
  MemoryLock lock;
  return TakeAddresses(RoundUp(bytes, kUnit));
}

void ReturnPages(CUdeviceptr base, std::uint64_t bytes) {
  MemoryLock lock;
  GiveAddresses(base, RoundUp(bytes, kUnit), true);
}

bool Backed(const Array& array) {
  if (!array.deferred) return true;
  return array.parent ? !array.parent->tiles.empty() : !array.tiles.empty();
}

void DropTiles(std::map<std::uint64_t, Physical*>& tiles) {
  MemoryLock lock;
  for (const auto& [offset, memory] : tiles) DropUse(*memory);
  tiles.clear();
}

void EndArraysOf(Context& context) {
  EndMipmapsOf(context);
  ForEach<Array>([&](Array* array) {
    if (array->context == &context && !array->parent && !array->is_plane) DestroyArray(*array);
  });
}

}  // namespace tessera::sim

using namespace tessera::sim;

namespace {

CUDA_ARRAY3D_DESCRIPTOR To3D(const CUDA_ARRAY_DESCRIPTOR& flat) {
  return {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0};
}

CUresult Named(CUarray handle, Array** array) {
  *array = Find<Array>(handle);
  return *array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

SIM_API(cuArrayCreate_v2)(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return handle && descriptor ? MakeArray(To3D(*descriptor), handle) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuArray3DCreate_v2)(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return handle && descriptor ? MakeArray(*descriptor, handle) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuArrayCreate)(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  return handle && d ? MakeArray({d->Width, d->Height, 0, d->Format, d->NumChannels, 0}, handle)
                     : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuArray3DCreate)(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  return handle && d
             ? MakeArray({d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags},
                         handle)
             : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  Array* array = nullptr;
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *descriptor = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}
SIM_API(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  Array* array = nullptr;
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}
SIM_API(cuArrayGetDescriptor)(CUDA_ARRAY_DESCRIPTOR_v1* descriptor, CUarray handle) {
  Array* array = nullptr;
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *descriptor = {static_cast<unsigned>(d.Width), static_cast<unsigned>(d.Height), d.Format,
                 d.NumChannels};
  return CUDA_SUCCESS;
}
SIM_API(cuArray3DGetDescriptor)(CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor, CUarray handle) {
  Array* array = nullptr;
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *descriptor = {static_cast<unsigned>(d.Width),
                 static_cast<unsigned>(d.Height),
                 static_cast<unsigned>(d.Depth),
                 d.Format,
                 d.NumChannels,
                 d.Flags};
  return CUDA_SUCCESS;
}

SIM_API(cuArrayDestroy)(CUarray handle) {
  Array* array = nullptr;
  SIM_TRY(Named(handle, &array));
  if (array->parent || array->is_plane)
    return CUDA_ERROR_INVALID_HANDLE;  // levels and planes end with their parent
  SIM_TRY(SynchronizeContext(*array->context));
  DestroyArray(*array);
  return CUDA_SUCCESS;
}

SIM_API(cuArrayGetMemoryRequirements)(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray handle,
                                      CUdevice ordinal) {
  Array* array = nullptr;
  if (!requirements) return CUDA_ERROR_INVALID_VALUE;
  if (!FindDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  SIM_TRY(Named(handle, &array));
  *requirements = {};
  requirements->size =
      RoundUp(array->bytes, array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? kUnit : 1);
  requirements->alignment =
      array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? kUnit : 64 * 1024;
  return CUDA_SUCCESS;
}

SIM_API(cuArrayGetSparseProperties)(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray handle) {
  Array* array = nullptr;
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  return SparseProperties(array->descriptor, array->element_bytes, 1, properties);
}

// Planes of NV12: luminance, and interleaved chrominance of half the size in each direction.
SIM_API(cuArrayGetPlane)(CUarray* plane, CUarray handle, unsigned index) {
  Array* array = nullptr;
  if (!plane) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Named(handle, &array));
  if (array->descriptor.Format != CU_AD_FORMAT_NV12 || index > 1) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  if (!array->planes[index]) {
    auto* made = new (std::nothrow) Array(*array);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    std::fill(std::begin(made->planes), std::end(made->planes), nullptr);
    const std::uint64_t rows = array->descriptor.Height;
    made->is_plane = true;
    made->owns_memory = false;
    made->descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    made->descriptor.NumChannels = index + 1;
    made->descriptor.Width = index ? array->descriptor.Width / 2 : array->descriptor.Width;
    made->descriptor.Height = made->rows = index ? rows / 2 : rows;
    made->element_bytes = index + 1;
    made->memory = array->memory + (index ? rows * array->row_bytes : 0);
    made->handle = NewHandle(made);
    array->planes[index] = made;
  }
  *plane = array->planes[index]->handle;
  return CUDA_SUCCESS;
}
