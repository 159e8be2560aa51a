// Text of a known width for terminals.
//
// Widths are columns: a CJK or emoji character takes two, a combining one none. What a terminal
// would obey, and what is no UTF-8, comes out of every function here as "?": whoever wrote the
// text, it can neither move the cursor nor make a line of its own. Colours are put around
// afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cli {

inline constexpr std::size_t kTextWidth = 80;

std::size_t Columns(std::string_view text);

// `text` in exactly `width` columns: padded with blanks, or cut with "~" as the last column.
std::string Left(std::string_view text, std::size_t width);
std::string Right(std::string_view text, std::size_t width);
// `text` in at most `width` columns, without padding.
std::string Cut(std::string_view text, std::size_t width);

// A command line in exactly `width` columns. Where it is longer, paths in it are shortened to the
// last part, which says more than the first.
std::string CommandLine(std::string_view line, std::size_t width);

// Lines of at most `width` columns, broken at blanks; the second and later ones begin with
// `indent`. A word longer than a line stays whole. Ends with a newline.
std::string Wrapped(std::string_view text, std::size_t width, std::string_view indent);

std::string Thousands(std::uint64_t number);  // 23,028
std::string Mib(std::uint64_t bytes);   // 23,028; any part of a MiB is cut off, below one MiB "<1"
std::string Age(std::int64_t seconds);  // 12s 5m 3h 2d
std::string Percent(std::uint64_t part, std::uint64_t whole);  // "37 %"

}  // namespace tessera::cli
