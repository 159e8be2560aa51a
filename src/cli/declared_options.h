// The options of one command as plain values: what completion and the help text are made from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

struct DeclaredOption {
  std::vector<std::string> names;  // "-c", "--card"
  std::string value;               // word for the value; empty = a flag
  std::vector<std::string> words;  // legal values when they are few
  std::string help;
  bool positional = false;
  bool rest = false;
};

// What `command` declares. The targets are the command's own members and stay untouched.
std::vector<DeclaredOption> DeclaredOptions(Command& command);

}  // namespace tessera::cli
