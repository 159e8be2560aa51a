// The view of the machine that a slice's processes get.
//
// Thread safety: single-threaded processes only. Not undone: on an error the process is to end, or
// to start nothing.
#pragma once

#include <string>

#include "base/result.h"

namespace tessera::node {

struct SandboxPlan {
  std::string slice_directory;  // on the host
  std::string slices_folder;    // the tree that is hidden inside
  std::string library;          // the fence on the host
};

// Where the library stands inside.
inline constexpr char kLibraryInside[] = "/run/tessera/libtessera.so";

// A new mount namespace: as root, else together with a user namespace. The namespace is still like
// the host's.
Status EnterNamespace();

// Builds the view in the namespace that EnterNamespace made.
Status BuildView(const SandboxPlan& plan);

// Gives up what the user namespace gave: no capability, none to be had by exec.
Status DropNamespaceCapabilities();

}  // namespace tessera::node
