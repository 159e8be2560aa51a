// Arrays: opaque images on a card, and mipmapped arrays made of them.
#pragma once

#include <cstdint>

#include "sim/cuda/context.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

struct Mipmap;

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
  CUdeviceptr memory = 0;    // 0: deferred or sparse, no memory yet
  bool owns_memory = false;  // levels and planes share their parent's
  Mipmap* parent = nullptr;
  Array* planes[3] = {};
};

std::uint64_t ElementBytes(CUarray_format format, unsigned channels);  // 0 when the format is unknown

// Ends arrays and mipmaps of a context.
void EndArraysOf(Context& context);

}  // namespace tessera::sim
