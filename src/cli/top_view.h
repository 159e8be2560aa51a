// One frame of `tessera top`, made from a snapshot. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/look.h"
#include "cli/terminal.h"

namespace tessera::cli {

struct TopStyle {
  bool color = false;
  bool utf8 = true;  // block characters in bars; else # and -
};

// Lines of at most size.columns columns, at most size.rows of them; rows 0 = all. A window without
// room for all loses bars, then the less important columns and lines. The last line tells how to
// leave when `live`.
std::vector<std::string> TopFrame(const Observed& observed, const TerminalSize& size,
                                  const TopStyle& style, const std::string& clock, bool live);

}  // namespace tessera::cli
