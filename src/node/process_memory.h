// What /proc says of a process and can only say by its memory: cmdline, environ, maps.
//
// To read them the kernel takes the lock of that memory and brings pages in. A tenant may have put
// a file of a file system there that never answers (FUSE, any user may mount one), or let a thread
// hang with the lock: then the read hangs, at times beyond SIGKILL. So it happens in a child that
// is given up after kMemoryWaitNs, and a tenant whose process hung is not asked again: the others
// of its user (of root: of its mount namespace) count as "may not be read".
//
// Thread safety: one thread. One object serves one look at the machine.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace tessera::node {

inline constexpr std::int64_t kMemoryWaitNs = 1'000'000'000;

class ProcessMemory {
 public:
  ProcessMemory() = default;
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  // The first `most_bytes` of /proc/PID/`file`, by a thread that lives. kDeadlineExceeded: it
  // hangs, or one of the same tenant did. Empty: a process without memory, which is about to end or
  // of the kernel; of "maps" that says nothing about what it had mapped.
  Result<std::string> Read(pid_t pid, const char* file, std::size_t most_bytes);

 private:
  using Tenant = std::pair<uid_t, std::uint64_t>;
  static Tenant TenantOf(pid_t pid);
  bool Hangs(const Tenant& tenant) const;
  Status Start();
  void Stop();
  Result<std::string> Ask(pid_t pid, const char* file, std::size_t most_bytes);

  pid_t child_ = 0;
  base::Fd line_;
  std::set<Tenant> hung_;
};

}  // namespace tessera::node
