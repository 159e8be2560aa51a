// Tensor maps: 128 opaque bytes that kernels read. What goes in is checked as the interface says
// and kept in an own layout.
#include <cstring>

#include "sim/cuda/api.h"

namespace {

struct MapContent {
  std::uint32_t magic, kind, type, rank;
  std::uint64_t address;
  std::uint64_t shape_hash;
  std::uint32_t interleave, swizzle, promotion, fill;
};
constexpr std::uint32_t kMagic = 0x50414D54;  // "TMAP"
static_assert(sizeof(MapContent) <= sizeof(CUtensorMap));

std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

CUresult Encode(CUtensorMap* map, std::uint32_t kind, CUtensorMapDataType type, cuuint32_t rank,
                std::uint32_t least_rank, void* address, const cuuint64_t* dim,
                const cuuint64_t* strides, const cuuint32_t* element_strides,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % 64 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (rank < least_rank || rank > 5 || dim == nullptr || element_strides == nullptr ||
      (rank > 1 && strides == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t alignment = interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
  if (address == nullptr || reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t hash = 0xCBF29CE484222325;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (dim[i] == 0 || dim[i] > (std::uint64_t{1} << 32)) return CUDA_ERROR_INVALID_VALUE;
    if (element_strides[i] == 0 || element_strides[i] > 8) return CUDA_ERROR_INVALID_VALUE;
    if (i + 1 < rank && (strides[i] % alignment != 0 || strides[i] >= (std::uint64_t{1} << 40)))
      return CUDA_ERROR_INVALID_VALUE;
    hash = Mix(hash, dim[i]);
    if (i + 1 < rank) hash = Mix(hash, strides[i]);
  }
  std::memset(map, 0, sizeof(*map));
  const MapContent content{kMagic,
                           kind,
                           static_cast<std::uint32_t>(type),
                           rank,
                           reinterpret_cast<std::uint64_t>(address),
                           hash,
                           static_cast<std::uint32_t>(interleave),
                           static_cast<std::uint32_t>(swizzle),
                           static_cast<std::uint32_t>(promotion),
                           static_cast<std::uint32_t>(fill)};
  std::memcpy(map, &content, sizeof(content));
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuTensorMapEncodeTiled)(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dim, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (box == nullptr || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (box[i] == 0 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
  }
  return Encode(map, 0, type, rank, 1, address, dim, strides, element_strides, interleave, swizzle,
                promotion, fill);
}

SIM_API(cuTensorMapEncodeIm2col)(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* dim, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (lower == nullptr || upper == nullptr || channels > 256 || pixels > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  return Encode(map, 1, type, rank, 3, address, dim, strides, element_strides, interleave, swizzle,
                promotion, fill);
}

SIM_API(cuTensorMapEncodeIm2colWide)(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                     void* address, const cuuint64_t* dim,
                                     const cuuint64_t* strides, int, int, cuuint32_t channels,
                                     cuuint32_t pixels, const cuuint32_t* element_strides,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
  if (channels > 256 || pixels > 1024) return CUDA_ERROR_INVALID_VALUE;
  return Encode(map, 2, type, rank, 3, address, dim, strides, element_strides, interleave, swizzle,
                promotion, fill);
}

SIM_API(cuTensorMapReplaceAddress)(CUtensorMap* map, void* address) {
  if (map == nullptr || address == nullptr || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MapContent content;
  std::memcpy(&content, map, sizeof(content));
  if (content.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  content.address = reinterpret_cast<std::uint64_t>(address);
  std::memcpy(map, &content, sizeof(content));
  return CUDA_SUCCESS;
}
