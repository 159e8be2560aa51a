#include "sim/cuda/share.h"

namespace tessera::sim {
void ForgetExport(Range&) {}
CUresult FreeMappedBuffer(Range&, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }
}  // namespace tessera::sim
