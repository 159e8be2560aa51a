// The lock under which promises are made and changed: STATE/lock.
//
// Whoever may read a file may lock it, so the file is as open as the promises are: where all users
// promise (STATE/slices may be written by others) all may hold it, else only who owns STATE/slices,
// and root. It belongs to that owner or root: anybody else could put another file in its place, and
// two would promise at once.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/result.h"

namespace tessera::node {

// Waited for kLockWaitNs (node/store.h) at most: kDeadlineExceeded names who holds it.
// kPermissionDenied: the lock is a stranger's; root puts one of its own there instead.
Result<base::FileLock> AcquireStateLock(const std::string& state, base::Clock& clock);

// Makes the file if it is missing, before others may write in the directory.
Status MakeStateLock(const std::string& state);

}  // namespace tessera::node
