// The processes of this machine as far as the fence is concerned; the seam for tests.
//
// Thread safety: one thread; reads of /proc, each bounded in time. What may not be seen (another
// user's process, one whose tenant lets it hang) is an empty optional, never a guess.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/plain_text.h"
#include "base/process.h"
#include "node/mount_view.h"

namespace tessera::watch {

struct ProcessEntry {
  base::ProcessIdentity identity;
  pid_t parent = 0;
  char state = '?';
  std::string command;                // comm, control characters replaced
  std::uint64_t mount_namespace = 0;  // inode; 0 = may not be seen
  std::uint64_t pid_namespace = 0;
};

struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct Mapped {
  bool fence = false;   // a libtessera*.so is mapped
  bool driver = false;  // libcuda.so is mapped
  bool ledger = false;  // the file asked about is mapped
  bool whole = true;    // false: longer than any program's, and not read to its end
};

class Processes {
 public:
  virtual ~Processes() = default;
  virtual std::vector<ProcessEntry> All() = 0;  // by pid; begins a look
  // Arguments joined by blanks, control characters replaced, at most 256 bytes; the comm when there
  // are none.
  virtual std::string CommandLine(const ProcessEntry& process) = 0;
  virtual std::optional<Mapped> Maps(pid_t pid, const FileIdentity& ledger) = 0;
  // The real user of the process; none: may not be seen.
  virtual std::optional<uid_t> UserOf(pid_t pid) = 0;
  // False also where it may not be seen.
  virtual bool InUserNamespace(pid_t pid, std::uint64_t inode) = 0;
  virtual node::SeenPolicy PolicyOf(pid_t pid) = 0;
  virtual void EndLook() {}  // lets go of what the look was taken with
};

// Those of /proc.
Processes& RealProcesses();

using base::Printable;

}  // namespace tessera::watch
