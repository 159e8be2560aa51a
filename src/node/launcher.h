// Starts a program behind the fence of a slice, in place: this process becomes the program, so that
// its pid, terminal, signals, exit code and death are the program's own.
//
// The program gets a mount namespace of its own: /run/tessera shows this slice only (`policy` and
// the library read-only), and /etc/ld.so.preload names the library, so that `env -i`, new logins,
// `su` and children stay fenced. As root without more; else inside a user namespace with the same
// uid and gid and no capability left. Where neither is allowed, LD_PRELOAD and TESSERA_SLICE_DIR
// are set instead, and one line says so.
//
// Thread safety: the process must have one thread. Needs /proc.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/held_signals.h"
#include "node/store.h"

namespace tessera::node {

struct LaunchPlan {
  std::vector<std::string> command;
  std::string program;  // as FindProgram found it
  std::string library;  // the fence on the host
  bool require_fence = false;
  HeldSignals* signals = nullptr;  // held since the promise was made; released before the program
};

// libtessera.so: `flag` when given, else PREFIX/lib/tessera beside the running PREFIX/bin, else the
// build tree's.
Result<std::string> FindFenceLibrary(const std::string& flag);

// The slice that this process is in already, by its policy at /run/tessera or TESSERA_SLICE_DIR;
// kNotFound outside of any.
Result<std::string> SurroundingSlice();

struct LaunchFailure {
  Error error;
  bool at_exec = false;  // the kernel would not start the program
};

// Does not return when the program started. Otherwise the slice has been given back and nothing
// runs.
LaunchFailure Launch(Store& store, SliceRecord record, const LaunchPlan& plan);

}  // namespace tessera::node
