#include "sim/cuda/texture.h"

#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/mipmap.h"

namespace tessera::sim {
namespace {

template <HandleKind Kind, typename H>
struct Object {
  static constexpr HandleKind kKind = Kind;
  using Handle = H;
  H handle{};
  Context* context = nullptr;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
};
// Both handles are integers of the same type.
using TextureObject = Object<HandleKind::kTexObject, CUtexObject>;
using SurfaceObject = Object<HandleKind::kSurfObject, CUsurfObject>;

CUresult CheckResource(const CUDA_RESOURCE_DESC& resource) {
  PointerInfo info;
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return Find<Array>(resource.res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return Find<Mipmap>(resource.res.mipmap.hMipmappedArray) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
      return resource.res.linear.sizeInBytes && FindPointer(resource.res.linear.devPtr, &info)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_PITCH2D:
      return resource.res.pitch2D.width && resource.res.pitch2D.height &&
                     FindPointer(resource.res.pitch2D.devPtr, &info)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

template <typename T>
CUresult Make(const CUDA_RESOURCE_DESC& resource, T** made) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(CheckResource(resource));
  *made = new (std::nothrow) T;
  if (!*made) return CUDA_ERROR_OUT_OF_MEMORY;
  (*made)->context = context;
  (*made)->resource = resource;
  (*made)->handle = NewHandle(*made);
  return CUDA_SUCCESS;
}

template <typename T>
void EndAll(Context& context) {
  ForEach<T>([&](T* object) {
    if (object->context == &context) delete RemoveHandle<T>(object->handle);
  });
}

}  // namespace

void EndTexturesOf(Context& context) {
  EndAll<TextureObject>(context);
  EndAll<SurfaceObject>(context);
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuTexObjectCreate)(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view) {
  if (!handle || !resource || !texture) return CUDA_ERROR_INVALID_VALUE;
  const bool array = resource->resType == CU_RESOURCE_TYPE_ARRAY ||
                     resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (view && !array) return CUDA_ERROR_INVALID_VALUE;
  TextureObject* object = nullptr;
  SIM_TRY(Make(*resource, &object));
  object->texture = *texture;
  object->has_view = view;
  if (view) object->view = *view;
  *handle = object->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuTexObjectDestroy)(CUtexObject handle) {
  TextureObject* object = RemoveHandle<TextureObject>(handle);
  delete object;
  return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuTexObjectGetResourceDesc)(CUDA_RESOURCE_DESC* resource, CUtexObject handle) {
  const TextureObject* object = Find<TextureObject>(handle);
  if (!resource || !object) return CUDA_ERROR_INVALID_VALUE;
  *resource = object->resource;
  return CUDA_SUCCESS;
}
SIM_API(cuTexObjectGetTextureDesc)(CUDA_TEXTURE_DESC* texture, CUtexObject handle) {
  const TextureObject* object = Find<TextureObject>(handle);
  if (!texture || !object) return CUDA_ERROR_INVALID_VALUE;
  *texture = object->texture;
  return CUDA_SUCCESS;
}
SIM_API(cuTexObjectGetResourceViewDesc)(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject handle) {
  const TextureObject* object = Find<TextureObject>(handle);
  if (!view || !object || !object->has_view) return CUDA_ERROR_INVALID_VALUE;
  *view = object->view;
  return CUDA_SUCCESS;
}

SIM_API(cuSurfObjectCreate)(CUsurfObject* handle, const CUDA_RESOURCE_DESC* resource) {
  if (!handle || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  const Array* array = Find<Array>(resource->res.array.hArray);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (!(array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST)) return CUDA_ERROR_INVALID_VALUE;
  SurfaceObject* object = nullptr;
  SIM_TRY(Make(*resource, &object));
  *handle = object->handle;
  return CUDA_SUCCESS;
}
SIM_API(cuSurfObjectDestroy)(CUsurfObject handle) {
  SurfaceObject* object = RemoveHandle<SurfaceObject>(handle);
  delete object;
  return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuSurfObjectGetResourceDesc)(CUDA_RESOURCE_DESC* resource, CUsurfObject handle) {
  const SurfaceObject* object = Find<SurfaceObject>(handle);
  if (!resource || !object) return CUDA_ERROR_INVALID_VALUE;
  *resource = object->resource;
  return CUDA_SUCCESS;
}
