#include "sim/cuda/vmm.h"

namespace tessera::sim {
bool FindMapping(Range&, std::uint64_t, PointerInfo*) { return false; }
}  // namespace tessera::sim
