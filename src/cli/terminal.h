// The terminal behind stdout.
#pragma once

#include <cstddef>
#include <optional>

namespace tessera::cli {

struct TerminalSize {
  std::size_t columns = 80, rows = 24;
};

// None when stdout is no terminal.
std::optional<TerminalSize> StdoutTerminal();

// Columns for printed tables: the terminal's, 80 where there is none, never less than 80 nor more
// than 160.
std::size_t TableWidth();

}  // namespace tessera::cli
