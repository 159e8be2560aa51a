// A machine with everything on it that the views have to show: two cards (the second lost), a
// well-behaved slice, one with a hole and remarks, foreign processes, a broken slice directory.
#pragma once

#include "cli/look.h"

namespace tessera::cli::testing {

Observed SampleMachine();

}  // namespace tessera::cli::testing
