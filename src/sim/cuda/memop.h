// Stream memory operations: streams that wait for words in memory, and write them.
#pragma once

#include "sim/cuda/stream.h"

namespace tessera::sim {

// Whether the operation can be done: known kind and flags, an aligned address that the card
// reaches.
CUresult CheckMemOp(const CUstreamBatchMemOpParams& op);
// Puts one checked operation on a stream.
CUresult SubmitMemOp(Stream& stream, const CUstreamBatchMemOpParams& op);

}  // namespace tessera::sim
