#include "node/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <vector>

#include "base/fd.h"
#include "base/files.h"

namespace tessera::node {
namespace {

constexpr std::size_t kMostEntries = 4096;

std::string FdPath(const base::Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

// Mount points strictly below `folder`, in the order in which they were mounted.
Result<std::vector<std::string>> MountsBelow(const std::string& folder) {
  Result<std::string> text = base::ReadKernelFile("/proc/self/mountinfo", 8 << 20);
  if (!text) return Fail(text.error());
  std::vector<std::string> points;
  for (std::size_t start = 0; start < text->size();) {
    std::size_t end = std::min(text->find('\n', start), text->size());
    std::string line = text->substr(start, end - start);
    start = end + 1;
    std::size_t at = 0;  // the fifth field of proc_pid_mountinfo(5)
    for (int field = 0; field < 4 && at != std::string::npos; ++field) {
      at = line.find(' ', at);
      if (at != std::string::npos) ++at;
    }
    if (at == std::string::npos) continue;
    std::string point = line.substr(at, line.find(' ', at) - at);
    if (point.compare(0, folder.size() + 1, folder + "/") == 0) points.push_back(point);
  }
  return points;
}

Status CloneEntry(const std::string& from, const std::string& to) {
  struct stat info{};
  if (lstat(from.c_str(), &info) != 0) return FailErrno(from, errno);
  if (S_ISLNK(info.st_mode)) {
    char target[PATH_MAX];
    ssize_t length = readlink(from.c_str(), target, sizeof target - 1);
    if (length < 0) return FailErrno(from, errno);
    target[length] = '\0';
    if (symlink(target, to.c_str()) != 0) return FailErrno(to, errno);
    return {};
  }
  if (S_ISDIR(info.st_mode)) {
    if (mkdir(to.c_str(), 0755) != 0) return FailErrno(to, errno);
  } else {
    base::Fd fd(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.valid()) return FailErrno(to, errno);
  }
  if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return FailErrno(to, errno);
  return {};
}

}  // namespace

Status MakeTreeSlave() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return FailErrno("mount namespace", errno);
  return {};
}

Status MountTmpfs(const std::string& at, const std::string& options) {
  if (mount("tessera", at.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return FailErrno(at, errno);
  return {};
}

Status MakeReadOnly(const std::string& mount_point) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (syscall(SYS_mount_setattr, AT_FDCWD, mount_point.c_str(), 0, &attributes,
              sizeof attributes) != 0) {
    return FailErrno(mount_point, errno);
  }
  return {};
}

Status BindFile(const std::string& from, const std::string& over, bool read_only) {
  if (mount(from.c_str(), over.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return FailErrno(over, errno);
  if (read_only) return MakeReadOnly(over);
  return {};
}

Status OverlayBelow(const std::string& etc, const std::string& folder) {
  Result<std::vector<std::string>> points = MountsBelow(etc);
  if (!points) return Fail(points.error());
  std::vector<base::Fd> kept;
  for (const std::string& point : *points) {
    kept.emplace_back(static_cast<int>(
        syscall(SYS_open_tree, AT_FDCWD, point.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
    if (!kept.back().valid()) return FailErrno(point, errno);
  }
  // The upper of the two lower layers is the folder as it is: its owner and mode stay.
  std::string layers = "lowerdir=" + etc + ":" + folder;
  if (mount("tessera", etc.c_str(), "overlay", MS_RDONLY, layers.c_str()) != 0)
    return FailErrno("overlay on " + etc, errno);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (syscall(SYS_move_mount, kept[i].get(), "", AT_FDCWD, (*points)[i].c_str(),
                MOVE_MOUNT_F_EMPTY_PATH) != 0) {
      return FailErrno((*points)[i], errno);
    }
  }
  return {};
}

Status RebuildFolder(const std::string& folder) {
  base::Fd before(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!before.valid()) return FailErrno(folder, errno);
  Result<std::vector<std::string>> names = base::ListDirectory(folder);
  if (!names) return Fail(names.error());
  if (names->size() > kMostEntries)
    return Fail(Code::kResourceExhausted, folder + ": too many entries");
  if (Status mounted = MountTmpfs(folder, "mode=0755,size=16m"); !mounted) return mounted;
  for (const std::string& name : *names) {
    Status cloned = CloneEntry(FdPath(before) + "/" + name, folder + "/" + name);
    if (!cloned && cloned.error().code != Code::kNotFound) return cloned;
  }
  return {};
}

}  // namespace tessera::node
