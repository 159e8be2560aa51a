// How a driver function is implemented:
//
//   SIM_API(cuMemFree_v2)(CUdeviceptr pointer) { ... return CUDA_SUCCESS; }
//
// The exported entry point (generated) passes the gate (initialised? fault injected?) and calls it.
// The declaration in impl.h comes from the toolkit's header, so a wrong parameter list does not
// compile. `_ptsz`/`_ptds` forms need no implementation unless the stream is inside a structure:
// the generated ones pass CU_STREAM_PER_THREAD for stream 0. Exceptions never leave an
// implementation; they use none.
#pragma once

#include "impl.h"
#include "sim/cuda/cuda_abi.h"
#include "sim/cuda/gate.h"

#define SIM_API(name) extern "C" CUresult impl_##name

// Returns the error of `expression`, if it is one.
#define SIM_TRY(expression)                                                     \
  do {                                                                          \
    if (CUresult sim_try_result = (expression); sim_try_result != CUDA_SUCCESS) \
      return sim_try_result;                                                    \
  } while (0)
