// Makes a context current on this thread while alive, for the parts that use the driver's own
// calls.
#pragma once

#include "sim/cuda/api.h"
#include "sim/cuda/context.h"

namespace tessera::sim {

class InContext {
 public:
  explicit InContext(const Context& context) {
    pushed_ = impl_cuCtxPushCurrent_v2(context.handle) == CUDA_SUCCESS;
  }
  ~InContext() {
    CUcontext popped;
    if (pushed_) impl_cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_;
};

}  // namespace tessera::sim
