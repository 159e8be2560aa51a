// At a synchronisation the driver gives back what pools hold in vain: the books follow. Costs one
// load where no pool is in use.
#include "memory/graphs.h"
#include "memory/own_usage.h"
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

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuCtxSynchronize() { return After(real::cuCtxSynchronize()); }
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) {
  return After(real::cuCtxSynchronize_v2(context));
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  return After(real::cuEventSynchronize(event));
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  return After(real::cuStreamSynchronize(stream));
}
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream) {
  return After(real::cuStreamSynchronize_ptsz(stream));
}

}  // extern "C"
