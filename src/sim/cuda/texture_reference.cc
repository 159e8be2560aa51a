// Texture and surface references: the old form of texture objects. They keep what is set on them.
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/mipmap.h"

using namespace tessera::sim;

namespace {

struct TextureReference {
  static constexpr HandleKind kKind = HandleKind::kTexRef;
  using Handle = CUtexref;
  CUarray array{};
  CUmipmappedArray mipmap{};
  CUdeviceptr address = 0;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;
  CUaddress_mode address_mode[3] = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP,
                                    CU_TR_ADDRESS_MODE_CLAMP};
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT, mipmap_filter = CU_TR_FILTER_MODE_POINT;
  float bias = 0, clamp_low = 0, clamp_high = 0, border[4] = {};
  unsigned anisotropy = 0, flags = 0;
};

constexpr std::size_t kAddressAlignment = 512;

// Calls `f` with the reference of a handle.
template <typename F>
CUresult With(CUtexref handle, F f) {
  TextureReference* reference = Find<TextureReference>(handle);
  return reference ? f(*reference) : CUDA_ERROR_INVALID_HANDLE;
}

template <typename T>
CUresult Get(CUtexref handle, T* out, T TextureReference::* member) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return With(handle, [&](TextureReference& r) {
    *out = r.*member;
    return CUDA_SUCCESS;
  });
}

template <typename T>
CUresult Set(CUtexref handle, T value, T TextureReference::* member) {
  return With(handle, [&](TextureReference& r) {
    r.*member = value;
    return CUDA_SUCCESS;
  });
}

CUresult SetAddress(std::size_t* offset, CUtexref handle, CUdeviceptr pointer, std::size_t bytes) {
  PointerInfo info;
  if (bytes && !FindPointer(pointer, &info)) return CUDA_ERROR_INVALID_VALUE;
  return With(handle, [&](TextureReference& r) {
    const std::size_t rest = pointer % kAddressAlignment;
    if (rest && !offset) return CUDA_ERROR_INVALID_VALUE;
    if (offset) *offset = rest;
    r.address = pointer;
    r.array = nullptr;
    r.mipmap = nullptr;
    return CUDA_SUCCESS;
  });
}

template <typename Descriptor>
CUresult SetAddress2D(CUtexref handle, const Descriptor* descriptor, CUdeviceptr pointer,
                      std::size_t pitch) {
  PointerInfo info;
  if (!descriptor || pitch == 0 || !FindPointer(pointer, &info)) return CUDA_ERROR_INVALID_VALUE;
  return With(handle, [&](TextureReference& r) {
    r.address = pointer;
    r.format = descriptor->Format;
    r.channels = static_cast<int>(descriptor->NumChannels);
    return CUDA_SUCCESS;
  });
}

}  // namespace

SIM_API(cuTexRefCreate)(CUtexref* handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  auto* reference = new (std::nothrow) TextureReference;
  if (!reference) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = NewHandle(reference);
  return CUDA_SUCCESS;
}
SIM_API(cuTexRefDestroy)(CUtexref handle) {
  TextureReference* reference = RemoveHandle<TextureReference>(handle);
  delete reference;
  return reference ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API(cuTexRefSetArray)(CUtexref handle, CUarray array, unsigned flags) {
  const Array* found = Find<Array>(array);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  return With(handle, [&](TextureReference& r) {
    r.array = array;
    r.format = found->descriptor.Format;
    r.channels = static_cast<int>(found->descriptor.NumChannels);
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefSetMipmappedArray)(CUtexref handle, CUmipmappedArray mipmap, unsigned flags) {
  if (!Find<Mipmap>(mipmap)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  return Set(handle, mipmap, &TextureReference::mipmap);
}
SIM_API(cuTexRefSetAddress_v2)(std::size_t* offset, CUtexref handle, CUdeviceptr pointer,
                               std::size_t bytes) {
  return SetAddress(offset, handle, pointer, bytes);
}
SIM_API(cuTexRefSetAddress)(unsigned* offset, CUtexref handle, CUdeviceptr_v1 pointer,
                            unsigned bytes) {
  std::size_t wide = 0;
  SIM_TRY(SetAddress(&wide, handle, pointer, bytes));
  if (offset) *offset = static_cast<unsigned>(wide);
  return CUDA_SUCCESS;
}
SIM_API(cuTexRefSetAddress2D_v3)(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* d,
                                 CUdeviceptr pointer, std::size_t pitch) {
  return SetAddress2D(handle, d, pointer, pitch);
}
SIM_API(cuTexRefSetAddress2D_v2)(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* d,
                                 CUdeviceptr pointer, std::size_t pitch) {
  return SetAddress2D(handle, d, pointer, pitch);
}
SIM_API(cuTexRefSetAddress2D)(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR_v1* d,
                              CUdeviceptr_v1 pointer, unsigned pitch) {
  return SetAddress2D(handle, d, pointer, pitch);
}
SIM_API(cuTexRefSetFormat)(CUtexref handle, CUarray_format format, int channels) {
  if (channels <= 0 || ElementBytes(format, static_cast<unsigned>(channels)) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Set(handle, format, &TextureReference::format));
  return Set(handle, channels, &TextureReference::channels);
}
SIM_API(cuTexRefSetAddressMode)(CUtexref handle, int dimension, CUaddress_mode mode) {
  if (dimension < 0 || dimension > 2) return CUDA_ERROR_INVALID_VALUE;
  return With(handle, [&](TextureReference& r) {
    r.address_mode[dimension] = mode;
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefSetFilterMode)(CUtexref h, CUfilter_mode v) {
  return Set(h, v, &TextureReference::filter);
}
SIM_API(cuTexRefSetMipmapFilterMode)(CUtexref h, CUfilter_mode v) {
  return Set(h, v, &TextureReference::mipmap_filter);
}
SIM_API(cuTexRefSetMipmapLevelBias)(CUtexref h, float v) {
  return Set(h, v, &TextureReference::bias);
}
SIM_API(cuTexRefSetMipmapLevelClamp)(CUtexref h, float low, float high) {
  SIM_TRY(Set(h, low, &TextureReference::clamp_low));
  return Set(h, high, &TextureReference::clamp_high);
}
SIM_API(cuTexRefSetMaxAnisotropy)(CUtexref h, unsigned v) {
  return Set(h, v, &TextureReference::anisotropy);
}
SIM_API(cuTexRefSetBorderColor)(CUtexref h, float* color) {
  if (!color) return CUDA_ERROR_INVALID_VALUE;
  return With(h, [&](TextureReference& r) {
    for (int i = 0; i < 4; ++i) r.border[i] = color[i];
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefSetFlags)(CUtexref h, unsigned v) { return Set(h, v, &TextureReference::flags); }

SIM_API(cuTexRefGetAddress_v2)(CUdeviceptr* out, CUtexref h) {
  return Get(h, out, &TextureReference::address);
}
SIM_API(cuTexRefGetAddress)(CUdeviceptr_v1* out, CUtexref h) {
  CUdeviceptr wide = 0;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Get(h, &wide, &TextureReference::address));
  *out = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}
SIM_API(cuTexRefGetArray)(CUarray* out, CUtexref h) {
  return Get(h, out, &TextureReference::array);
}
SIM_API(cuTexRefGetMipmappedArray)(CUmipmappedArray* out, CUtexref h) {
  return Get(h, out, &TextureReference::mipmap);
}
SIM_API(cuTexRefGetAddressMode)(CUaddress_mode* out, CUtexref h, int dimension) {
  if (!out || dimension < 0 || dimension > 2) return CUDA_ERROR_INVALID_VALUE;
  return With(h, [&](TextureReference& r) {
    *out = r.address_mode[dimension];
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefGetFilterMode)(CUfilter_mode* out, CUtexref h) {
  return Get(h, out, &TextureReference::filter);
}
SIM_API(cuTexRefGetFormat)(CUarray_format* format, int* channels, CUtexref h) {
  SIM_TRY(Get(h, format, &TextureReference::format));
  return Get(h, channels, &TextureReference::channels);
}
SIM_API(cuTexRefGetMipmapFilterMode)(CUfilter_mode* out, CUtexref h) {
  return Get(h, out, &TextureReference::mipmap_filter);
}
SIM_API(cuTexRefGetMipmapLevelBias)(float* out, CUtexref h) {
  return Get(h, out, &TextureReference::bias);
}
SIM_API(cuTexRefGetMipmapLevelClamp)(float* low, float* high, CUtexref h) {
  SIM_TRY(Get(h, low, &TextureReference::clamp_low));
  return Get(h, high, &TextureReference::clamp_high);
}
SIM_API(cuTexRefGetMaxAnisotropy)(int* out, CUtexref h) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return With(h, [&](TextureReference& r) {
    *out = static_cast<int>(r.anisotropy);
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefGetBorderColor)(float* color, CUtexref h) {
  if (!color) return CUDA_ERROR_INVALID_VALUE;
  return With(h, [&](TextureReference& r) {
    for (int i = 0; i < 4; ++i) color[i] = r.border[i];
    return CUDA_SUCCESS;
  });
}
SIM_API(cuTexRefGetFlags)(unsigned* out, CUtexref h) {
  return Get(h, out, &TextureReference::flags);
}

// Surface references come only from modules, and no module of this driver has any.
SIM_API(cuSurfRefSetArray)(CUsurfref, CUarray, unsigned) { return CUDA_ERROR_INVALID_HANDLE; }
SIM_API(cuSurfRefGetArray)(CUarray*, CUsurfref) { return CUDA_ERROR_INVALID_HANDLE; }
