// The driver's ABI: cuda.h with every version of every function declared, as the driver itself is
// built.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

extern "C" {
// cudaProfiler.h is in no wheel; these are its declarations as cudaProfilerTypedefs.h gives them.
typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR = 0, CU_OUT_CSV = 1 } CUoutput_mode;
CUresult cuProfilerInitialize(const char* configFile, const char* outputFile,
                              CUoutput_mode outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
}
