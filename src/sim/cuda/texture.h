// Texture and surface objects: descriptions that programs make, ask back and destroy. Nothing
// samples them.
#pragma once

#include "sim/cuda/context.h"

namespace tessera::sim {

void EndTexturesOf(Context& context);

}  // namespace tessera::sim
