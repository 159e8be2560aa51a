// From the words of a command line to a command that ran.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

// Parses `words` (without the program's own name), runs the subcommand of `table` that they name
// and returns its exit code. Help and version go to `out`; a line for each mistake goes to `err`,
// with kUsage.
int RunCommandLine(std::span<const CommandRow> table, const std::vector<std::string>& words,
                   std::ostream& out, std::ostream& err);

}  // namespace tessera::cli
