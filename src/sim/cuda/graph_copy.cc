// Work of copy and fill nodes, by the same plans as the stream functions make.
#include <cstdint>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/copy.h"
#include "sim/cuda/graph.h"

namespace tessera::sim {

CUresult CheckCopy(const CUDA_MEMCPY3D& c) {
  // A program may pass what the enumeration has no value for: looked at as the number that it is.
  const auto known = [](const CUmemorytype& type) {
    std::uint32_t number = 0;
    static_assert(sizeof number == sizeof type);
    std::memcpy(&number, &type, sizeof number);
    return number >= CU_MEMORYTYPE_HOST && number <= CU_MEMORYTYPE_UNIFIED;
  };
  if (!known(c.srcMemoryType) || !known(c.dstMemoryType)) return CUDA_ERROR_INVALID_VALUE;
  const auto narrow = [&](CUmemorytype type, std::size_t pitch) {
    return c.Height > 1 && type != CU_MEMORYTYPE_ARRAY && pitch != 0 && pitch < c.WidthInBytes;
  };
  return narrow(c.srcMemoryType, c.srcPitch) || narrow(c.dstMemoryType, c.dstPitch)
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult CheckFill(const CUDA_MEMSET_NODE_PARAMS& f) {
  if (f.elementSize != 1 && f.elementSize != 2 && f.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (f.dst == 0 || f.dst % f.elementSize != 0) return CUDA_ERROR_INVALID_VALUE;
  return f.height > 1 && f.pitch < f.width * f.elementSize ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

CUresult CopyWork(const Context& context, const CUDA_MEMCPY3D& copy, Work* work) {
  CopyPlan plan;
  SIM_TRY(PlanCopy(context, copy, &plan));
  work->engine = plan.engine;
  work->duration_ns = plan.duration_ns;
  work->effect = [plan] {
    RunCopy(plan);
    MemoryChanged();
  };
  return CUDA_SUCCESS;
}

CUresult FillWork(const Context& context, const CUDA_MEMSET_NODE_PARAMS& fill, Work* work) {
  FillPlan plan;
  SIM_TRY(PlanFill(context, fill, &plan));
  work->engine = EngineKind::kCompute;
  work->duration_ns = plan.duration_ns;
  work->effect = [plan] {
    RunFill(plan);
    MemoryChanged();
  };
  return CUDA_SUCCESS;
}

}  // namespace tessera::sim
