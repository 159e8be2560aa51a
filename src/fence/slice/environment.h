// A slice from HAMi's variables, where there is no policy: limits by the index of the card in the
// container.
#pragma once

#include "slice/slice.h"

namespace tessera::fence {

// kInert when none of the variables is set; kRefused, with slice.problem, when one of them is not
// exactly legal or no ledger can be had.
Mode AttachEnvironment(Slice& slice);

}  // namespace tessera::fence
