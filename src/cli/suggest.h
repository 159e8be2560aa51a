// The nearest of some words to a misspelt one.
#pragma once

#include <span>
#include <string_view>

namespace tessera::cli {

// The word that `typed` was probably meant to be; empty if none is near (more than a third of it
// differs, two letters at least). Ties go to the earlier word.
std::string_view Nearest(std::string_view typed, std::span<const std::string_view> words);

}  // namespace tessera::cli
