// One line on stderr for each problem, whatever the value that caused it holds.
#pragma once

#include <ostream>
#include <string_view>

#include "base/plain_text.h"
#include "cli/command.h"

namespace tessera::cli {

// "who: what"; answers `code`.
inline int Complain(std::ostream& err, std::string_view who, std::string_view what, int code) {
  err << who << ": " << base::Message(what) << "\n";
  return code;
}

}  // namespace tessera::cli
