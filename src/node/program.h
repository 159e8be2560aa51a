// The program that `tessera run` is to start: where it is, and whether a preloaded library can get
// into it.
#pragma once

#include <string>

#include "base/result.h"

namespace tessera::node {

// The file that execvp(3) would start for `command` with the PATH of this process. kNotFound, or
// kPermissionDenied when it is there and may not be executed.
Result<std::string> FindProgram(const std::string& command);

bool IsElf(const std::string& path);

struct ProgramKind {
  bool fenceable = false;
  std::string interpreter;  // the dynamic loader, when there is one
  std::string file;         // the ELF file in the end, after following #! lines
  std::string reason;       // when not fenceable: "is statically linked", one clause
};

// Reads the file's first bytes (and those of the interpreters of its #! lines). What cannot be read
// counts as fenceable: the kernel will say what is wrong with it.
ProgramKind InspectProgram(const std::string& path);

// Asks the program's own loader what it would load, where this process stands: true when `library`
// is among it. Nothing of the program runs. Bounded to 5 s.
bool LoaderLoads(const ProgramKind& program, const std::string& library);

}  // namespace tessera::node
