#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/files.h"

namespace tessera::base {
namespace {

template <typename T>
T NumberAt(const std::vector<std::string_view>& fields, std::size_t index) {
  T value{};
  if (index < fields.size()) {
    std::from_chars(fields[index].data(), fields[index].data() + fields[index].size(), value);
  }
  return value;
}

bool HasEnded(const ProcessStat& stat) { return stat.state == 'Z' || stat.state == 'X'; }

}  // namespace

Result<ProcessStat> ParseProcessStat(const std::string& text) {
  // pid (comm) state ...: comm may hold spaces and parentheses, so the last ')' ends it.
  std::size_t open = text.find('(');
  std::size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return Fail(Code::kDataLoss, "/proc/PID/stat: no command in parentheses");
  }
  ProcessStat stat;
  std::from_chars(text.data(), text.data() + open, stat.identity.pid);
  stat.command = text.substr(open + 1, close - open - 1);
  std::vector<std::string_view> fields;  // fields[0] is field 3 of proc(5)
  std::string_view rest = std::string_view(text).substr(close + 1);
  while (!rest.empty()) {
    std::size_t start = rest.find_first_not_of(" \n");
    if (start == std::string_view::npos) break;
    std::size_t end = rest.find_first_of(" \n", start);
    fields.push_back(rest.substr(start, end == std::string_view::npos ? end : end - start));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  }
  constexpr std::size_t kFirstField = 3;
  if (fields.size() < 22 - kFirstField + 1) {
    return Fail(Code::kDataLoss, "/proc/PID/stat: fewer than 22 fields");
  }
  stat.state = fields[0][0];
  stat.parent = NumberAt<pid_t>(fields, 4 - kFirstField);
  stat.threads = NumberAt<std::uint64_t>(fields, 20 - kFirstField);
  stat.identity.start_ticks = NumberAt<std::uint64_t>(fields, 22 - kFirstField);
  stat.stack_start = NumberAt<std::uint64_t>(fields, 28 - kFirstField);
  return stat;
}

Result<ProcessStat> ReadProcessStat(pid_t pid) {
  Result<std::string> text = ReadKernelFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return Fail(Code::kNotFound, "no process " + std::to_string(pid));
  return ParseProcessStat(*text);
}

ProcessIdentity OwnIdentity() {
  Result<ProcessStat> stat = ReadProcessStat(getpid());
  return stat ? stat->identity : ProcessIdentity{getpid(), 0};
}

bool IsHidden(pid_t pid) {
  if (kill(pid, 0) == 0 || errno != EPERM) return false;
  const std::string folder = "/proc/" + std::to_string(pid);
  return access(folder.c_str(), F_OK) != 0;
}

bool Alive(const ProcessIdentity& identity) {
  if (identity.pid <= 0) return false;
  Result<ProcessStat> stat = ReadProcessStat(identity.pid);
  if (!stat) return IsHidden(identity.pid);
  if (stat->identity.start_ticks != identity.start_ticks) return false;
  return !HasEnded(*stat) || stat->threads > 1;
}

pid_t LivingThread(pid_t pid) {
  const Result<ProcessStat> stat = ReadProcessStat(pid);
  if (!stat || !HasEnded(*stat) || stat->threads <= 1) return pid;
  // Threads that have ended stay listed only while somebody traces them.
  constexpr int kMostThreads = 4096;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(folder.c_str()), &closedir);
  for (int seen = 0; tasks && seen < kMostThreads; ++seen) {
    const dirent* entry = readdir(tasks.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread == 0 || thread == pid) continue;
    const Result<ProcessStat> of_thread = ReadProcessStat(thread);
    if (of_thread && !HasEnded(*of_thread)) return thread;
  }
  return pid;
}

std::uint64_t NamespaceInode(pid_t pid, const char* kind) {
  const auto inode_of = [kind](pid_t task) -> std::uint64_t {
    struct stat info{};
    const std::string path = "/proc/" + std::to_string(task) + "/ns/" + kind;
    return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  const std::uint64_t inode = inode_of(pid);
  if (inode != 0 || errno != ENOENT) return inode;
  const pid_t thread = LivingThread(pid);
  return thread == pid ? 0 : inode_of(thread);
}

bool IsInUserNamespace(pid_t pid, std::uint64_t inode) {
  constexpr int kMostDepth = 33;  // the kernel's limit, the first one included
  const std::string path = "/proc/" + std::to_string(LivingThread(pid)) + "/ns/user";
  Fd space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (int depth = 0; space.valid() && depth < kMostDepth; ++depth) {
    struct stat info{};
    if (fstat(space.get(), &info) != 0) return false;
    if (info.st_ino == inode) return true;
    space = Fd(ioctl(space.get(), NS_GET_PARENT));  // EPERM above the caller's own
  }
  return false;
}

std::optional<uid_t> RealUser(pid_t pid) {
  // "Uid:\t1000\t1000\t1000\t1000"
  const Result<std::string> status =
      ReadKernelFile("/proc/" + std::to_string(pid) + "/status", 65536);
  if (!status) return std::nullopt;
  constexpr std::string_view kField = "\nUid:\t";
  const std::size_t at = status->find(kField);
  if (at == std::string::npos) return std::nullopt;
  uid_t user = 0;
  const char* begin = status->data() + at + kField.size();
  if (std::from_chars(begin, status->data() + status->size(), user).ec != std::errc{}) {
    return std::nullopt;
  }
  return user;
}

}  // namespace tessera::base
