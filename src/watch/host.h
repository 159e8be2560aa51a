// What this machine allows: tried, not read from version numbers.
//
// Each trial runs in a child of its own, bounded in time, and leaves nothing behind.
#pragma once

#include <string>

#include "base/result.h"

namespace tessera::watch {

// A mount namespace (as root, else inside a user namespace) with an overlay on /etc: what `tessera
// run` builds its fence of.
Status TryNamespaces();

// Starts a small program with `library` preloaded and looks whether it is mapped there. An error
// names what the loader said.
Status TryPreload(const std::string& library);

struct StateDirectory {
  std::string path;
  bool writable = false;
  bool by_all = false;  // other users of the machine may promise there too
};
StateDirectory LookAtState(const std::string& path);

}  // namespace tessera::watch
