// Copies and fills: checking, time and the moving of bytes, for the copy functions and for graph
// nodes.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>

#include "sim/cuda/context.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {

// A checked copy with its memory found.
struct CopyPlan {
  const char* source = nullptr;
  char* destination = nullptr;
  std::uint64_t source_pitch = 0, source_slice = 0, destination_pitch = 0, destination_slice = 0;
  std::uint64_t width = 0, height = 0, depth = 0;  // bytes, rows, slices
  bool source_on_card = false, destination_on_card = false;
  bool pageable = false;  // one end is host memory that is not pinned
  EngineKind engine = EngineKind::kNone;
  std::uint64_t duration_ns = 0;
};

// Checks a copy as the driver does and says how long it takes in this context: INVALID_VALUE for
// memory that is not there or too small, INVALID_HANDLE for an array that is none. A copy of
// nothing is a plan of width 0.
CUresult PlanCopy(const Context& context, const CUDA_MEMCPY3D& copy, CopyPlan* plan);
void RunCopy(const CopyPlan& plan);

// A straight copy between two addresses of any kind.
CUDA_MEMCPY3D LinearCopy(std::uint64_t destination, CUmemorytype destination_type,
                         std::uint64_t source, CUmemorytype source_type, std::uint64_t bytes);

// Does the copy on a stream (or adds it to the graph that the stream captures).
CUresult SubmitCopy(Stream& stream, const CUDA_MEMCPY3D& copy);
CUresult CopyAsync(const CUDA_MEMCPY3D& copy, CUstream handle);

struct FillPlan {
  char* destination = nullptr;
  std::uint64_t pitch = 0, width = 0, height = 0;  // bytes, bytes, rows
  unsigned value = 0, element = 1;                 // element 1, 2 or 4 bytes
  bool on_card = false;
  std::uint64_t duration_ns = 0;
};
CUresult PlanFill(const Context& context, const CUDA_MEMSET_NODE_PARAMS& fill, FillPlan* plan);
void RunFill(const FillPlan& plan);
CUresult SubmitFill(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill);

}  // namespace tessera::sim
