// What `tessera ps` prints, made from a snapshot. Pure.
#pragma once

#include <string>

#include "cli/look.h"

namespace tessera::cli {

// Text of at most `width` columns (not less than 80), one or more lines a slice.
std::string PsText(const Observed& observed, std::size_t width);

}  // namespace tessera::cli
