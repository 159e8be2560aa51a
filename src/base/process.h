// Who a process is: pid and start time together, so that a pid given again is somebody else.
//
// Thread safety: pure reads of /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace tessera::base {

struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: clock ticks since boot

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

struct ProcessStat {
  ProcessIdentity identity;
  char state = '?';     // R S D T Z X ...
  std::string command;  // comm
  pid_t parent = 0;
  std::uint64_t threads = 0;
  std::uint64_t stack_start = 0;  // field 28; 0 where the reader may not see it
};

// kNotFound when there is no such process.
Result<ProcessStat> ReadProcessStat(pid_t pid);
Result<ProcessStat> ParseProcessStat(const std::string& text);

ProcessIdentity OwnIdentity();

// Another user's process on a machine whose /proc shows each user only its own (hidepid): it is
// there, and that is all that can be said.
bool IsHidden(pid_t pid);

// Lives: same pid and start time, not a zombie with no other thread left. A hidden process counts
// as alive.
bool Alive(const ProcessIdentity& identity);

// The number under which /proc shows memory, namespaces and files of a process: its own, or that of
// a thread that lives where the first one has ended (pthread_exit in main). Of such a process
// /proc/PID shows empty lists and no namespaces.
pid_t LivingThread(pid_t pid);

// Inode of a namespace of a process ("mnt", "pid", "user"); 0 when it may not be seen or is gone.
std::uint64_t NamespaceInode(pid_t pid, const char* kind);

// Whether the process is in the user namespace of that inode, or in one below it: no process leaves
// its own for one that is not below. False where it may not be seen.
bool IsInUserNamespace(pid_t pid, std::uint64_t inode);

// The real user of a process; none: may not be seen. The owner of /proc/PID will not do: it is root
// for what may not be dumped.
std::optional<uid_t> RealUser(pid_t pid);

}  // namespace tessera::base
