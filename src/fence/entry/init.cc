#include "real.h"

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) { return tessera::fence::real::cuInit(flags); }
