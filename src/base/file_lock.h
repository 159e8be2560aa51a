// An exclusive flock(2), given up when the object or the process ends.
//
// Whoever may read a file may lock it. Who does not get the lock is told who has it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace tessera::base {

class FileLock {
 public:
  // Waits at most wait_ns, then kDeadlineExceeded with pid, command and user of the holder. `path`
  // is for messages.
  static Result<FileLock> Acquire(Fd file, const std::string& path, std::int64_t wait_ns,
                                  Clock& clock);
  int fd() const { return fd_.get(); }

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// "pid 123 (python) of user 1000", from /proc/locks; "a process that cannot be seen from here"
// where it is in another pid namespace.
std::string HolderOf(int file);

}  // namespace tessera::base
