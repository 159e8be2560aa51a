// Arrays: opaque images on a card, and mipmapped arrays made of them.
#pragma once

#include <cstdint>
#include <map>

#include "sim/cuda/context.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

struct Mipmap;
struct Physical;

struct Array {
  static constexpr HandleKind kKind = HandleKind::kArray;
  using Handle = CUarray;

  CUarray handle{};
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  std::uint64_t element_bytes = 0;  // all channels
  std::uint64_t row_bytes = 0;      // pitch in memory
  std::uint64_t rows = 0, slices = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr memory = 0;
  bool owns_memory = false;  // levels and planes share their parent's
  bool deferred = false;  // sparse or deferred: what is mapped (tiles) pays for it, the bytes lie
                          // in pages of no card
  bool is_plane = false;
  Mipmap* parent = nullptr;
  std::map<std::uint64_t, Physical*> tiles;  // cuMemMapArrayAsync: offset -> memory in use
  Array* planes[3] = {};
};

std::uint64_t ElementBytes(CUarray_format format,
                           unsigned channels);  // 0 when the format is unknown

// Checks a descriptor and says how the array lies in memory.
CUresult LayOut(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Array* array);
CUresult MakeArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* handle);
void DestroyArray(Array& array);
// Addresses for an array whose memory is mapped later; back with ReturnPages.
CUdeviceptr DeferredPages(std::uint64_t bytes);
void ReturnPages(CUdeviceptr base, std::uint64_t bytes);
// Whether the array may be used: it has memory, or something is mapped.
bool Backed(const Array& array);
void DropTiles(std::map<std::uint64_t, Physical*>& tiles);

// INVALID_VALUE unless the descriptor is of a sparse array.
CUresult SparseProperties(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, std::uint64_t element_bytes,
                          unsigned levels, CUDA_ARRAY_SPARSE_PROPERTIES* properties);

// Ends arrays and mipmaps of a context.
void EndArraysOf(Context& context);

}  // namespace tessera::sim
