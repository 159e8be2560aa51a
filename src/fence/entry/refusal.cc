#include "entry/refusal.h"

#include <atomic>
#include <cstdint>

#include "os/os.h"
#include "slice/slice.h"

namespace tessera::fence {

bool SliceRefused() {
  if (AttachSlice() != Mode::kRefused) return false;
  static constinit std::atomic<std::uint32_t> said = 0;
  if (said.exchange(1) == 0) os::Complain({SliceProblem()});
  return true;
}

}  // namespace tessera::fence
