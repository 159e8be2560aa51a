#pragma once

#include "sim/cuda/context.h"

namespace tessera::sim {

// Gives up external memory that a context imported and did not destroy.
void EndExternalMemoryOf(Context& context);

}  // namespace tessera::sim
