// Mount operations of one process that stands in a mount namespace of its own.
//
// Thread safety: single-threaded processes only. Nothing reaches the host: the caller has made the
// tree a slave first. Needs Linux 5.12 (mount_setattr) and works as root and with full capabilities
// in a user namespace.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace tessera::node {

// No mount of this namespace reaches the host from here on; the host's still come in.
Status MakeTreeSlave();

Status MountTmpfs(const std::string& at, const std::string& options);

// Binds the file behind a path (also "/proc/self/fd/N") over an existing file, with the mount's own
// flags.
Status BindFile(const std::string& from, const std::string& over, bool read_only);

Status MakeReadOnly(const std::string& mount_point);

// Puts `folder` (read-only from then on) under `etc`: its files appear where `etc` has none of that
// name. Mounts below `etc` stay.
Status OverlayBelow(const std::string& etc, const std::string& folder);

// Replaces `folder` in this namespace by a tmpfs with the same entries bound to it, so that entries
// can be added. What the host adds there later is not seen.
Status RebuildFolder(const std::string& folder);

}  // namespace tessera::node
