#include "base/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/files.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "base/process.h"

namespace tessera::base {
namespace {

// "1: FLOCK  ADVISORY  WRITE 711 fe:01:1234 0 EOF"; 0: nobody who can be seen.
pid_t PidThatLocks(const struct stat& file) {
  constexpr std::size_t kMostLocks = 16 << 20;
  const Result<std::string> locks = ReadKernelFile("/proc/locks", kMostLocks);
  if (!locks) return 0;
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", major(file.st_dev), minor(file.st_dev),
                static_cast<unsigned long long>(file.st_ino));
  std::istringstream lines(*locks);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, pid, where;
    words >> number >> kind;
    if (kind == "->") continue;  // waits for it
    words >> advisory >> access >> pid >> where;
    if (kind == "FLOCK" && where == wanted) return std::atoi(pid.c_str());
  }
  return 0;
}

}  // namespace

std::string HolderOf(int file) {
  struct stat info{};
  const pid_t pid = fstat(file, &info) == 0 ? PidThatLocks(info) : 0;
  if (pid <= 0) return "a process that cannot be seen from here";
  std::string who = "pid " + std::to_string(pid);
  if (const Result<ProcessStat> stat = ReadProcessStat(pid); stat)
    who += " (" + Shown(stat->command) + ")";
  if (const std::optional<uid_t> user = RealUser(pid)) who += " of user " + std::to_string(*user);
  return who;
}

Result<FileLock> FileLock::Acquire(Fd file, const std::string& path, std::int64_t wait_ns,
                                   Clock& clock) {
  std::int64_t deadline = clock.NowNs() + wait_ns;
  std::int64_t told_at = clock.NowNs() + kQuietNs;
  std::int64_t pause_ns = 200'000;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FailErrno(path, errno);
    if (clock.NowNs() >= deadline) {
      return Fail(Code::kDeadlineExceeded, path + ": held for more than " +
                                               std::to_string(wait_ns / 1'000'000) + " ms by " +
                                               HolderOf(file.get()));
    }
    if (clock.NowNs() >= told_at) {
      Waiting("for " + HolderOf(file.get()) + ", who holds " + path);
      told_at = deadline;
    }
    clock.SleepNs(pause_ns);
    pause_ns = std::min<std::int64_t>(pause_ns * 2, 5'000'000);
  }
  return FileLock(std::move(file));
}

}  // namespace tessera::base
