// At a synchronisation the driver gives back what pools hold in vain: the books follow. Costs one
// load where no pool is in use.
#include "memory/graphs.h"
#include "memory/own_usage.h"
#include "memory/physical.h"
#include "memory/pools.h"
#include "real.h"

namespace tessera::fence {
namespace {

CUresult After(CUresult result) {
  if (PoolsDirty()) SettleDirtyPools();
  if (GraphMemorySeen()) SettleAllGraphs();
  if (AnyUnsettled()) SettleUnsettled();
  return result;
}

// `stream` 0: the whole context.
CUresult After(CUresult result, std::uint64_t stream) {
  if (result == CUDA_SUCCESS && AnyUndone() && stream != 2) EndUndone(stream, stream == 0);
  return After(result);
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuCtxSynchronize() { return After(real::cuCtxSynchronize(), 0); }
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) {
  return After(real::cuCtxSynchronize_v2(context), 0);
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  return After(real::cuEventSynchronize(event));
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  return After(real::cuStreamSynchronize(stream), StreamNumber(stream, 1));
}
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream) {
  return After(real::cuStreamSynchronize_ptsz(stream), StreamNumber(stream, 2));
}

}  // extern "C"
