// `tessera-sim run`: a program on a simulated node.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::sim {

struct RunOptions {
  std::string node = "a10g";  // file or preset
  std::string state;          // node file to make or join; empty = one of its own
  std::string libraries;      // empty = ../lib beside the program
  bool no_namespace = false;  // use the environment as where namespaces are refused
  std::vector<std::string> command;
};

// Does not return when the command was started in this process; else its exit status, or an error
// when nothing was started.
Result<int> Run(const RunOptions& options);

}  // namespace tessera::sim
