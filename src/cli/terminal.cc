#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "cli/text.h"

namespace tessera::cli {

std::optional<TerminalSize> StdoutTerminal() {
  if (isatty(STDOUT_FILENO) == 0) return std::nullopt;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return TerminalSize{};
  return TerminalSize{size.ws_col, size.ws_row};
}

std::size_t TableWidth() {
  const std::optional<TerminalSize> terminal = StdoutTerminal();
  return terminal ? std::clamp<std::size_t>(terminal->columns, kTextWidth, 160) : kTextWidth;
}

}  // namespace tessera::cli
