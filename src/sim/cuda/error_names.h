#pragma once

namespace tessera::sim {

// Generated from the toolkit's CUresult: "CUDA_ERROR_OUT_OF_MEMORY" for 2; nullptr for values that
// are none.
const char* ErrorName(int result);

}  // namespace tessera::sim
