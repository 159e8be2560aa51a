// Mipmapped arrays: levels that share one piece of memory.
#pragma once

#include <vector>

#include "sim/cuda/array.h"

namespace tessera::sim {

struct Mipmap {
  static constexpr HandleKind kKind = HandleKind::kMipmap;
  using Handle = CUmipmappedArray;

  CUmipmappedArray handle{};
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  std::vector<Array*> levels;
  std::uint64_t bytes = 0;
  CUdeviceptr memory = 0;
  bool owns_memory = false, deferred = false;
  std::map<std::uint64_t, Physical*> tiles;
};

// `memory` 0: taken from the context's card, unless the descriptor defers it.
CUresult MakeMipmap(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels,
                    CUdeviceptr memory, std::uint64_t memory_bytes, CUmipmappedArray* handle);
void EndMipmapsOf(Context& context);

}  // namespace tessera::sim
