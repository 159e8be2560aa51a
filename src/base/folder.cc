#include "base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/files.h"

namespace tessera::base {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// One component below `folder`, on its file system; -1 and errno as open(2).
int OpenIn(int folder, const std::string& name, int flags, mode_t mode = 0) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  const long fd = syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how);
  // Before Linux 5.6, or where a filter does not know the call: the same without the mount's rule.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    return openat(folder, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
  }
  return static_cast<int>(fd);
}

}  // namespace

Result<Folder> Folder::Of(Fd fd, std::string path) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return FailErrno(path, errno);
  return Folder(std::move(fd), std::move(path), info.st_uid, info.st_mode);
}

Result<Folder> Folder::Open(const std::string& path) {
  Fd fd(open(path.c_str(), kFolderFlags));
  if (!fd.valid() && errno == ENOTDIR) return Fail(Code::kDataLoss, path + ": not a directory");
  if (!fd.valid()) return FailErrno(path, errno);
  return Of(std::move(fd), path);
}

Result<Folder> Folder::OpenParentOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
  Fd fd(open(parent.empty() ? "/" : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FailErrno(parent, errno);
  return Of(std::move(fd), parent);
}

Result<Folder> Folder::Sub(const std::string& name) const {
  Fd fd(OpenIn(fd_.get(), name, kFolderFlags));
  if (!fd.valid() && (errno == ENOTDIR || errno == ELOOP))
    return Fail(Code::kDataLoss, In(name) + ": not a directory");
  if (!fd.valid()) return FailErrno(In(name), errno);
  return Of(std::move(fd), In(name));
}

bool Folder::HasSub(const std::string& name) const {
  const Fd fd(OpenIn(fd_.get(), name, O_PATH | O_DIRECTORY));
  return fd.valid();
}

std::optional<uid_t> Folder::OwnerOf(const std::string& name) const {
  struct stat info{};
  if (fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info.st_uid;
}

Result<std::vector<std::string>> Folder::List() const {
  // Of its own: a duplicate would share the position.
  Fd own(openat(fd_.get(), ".", kFolderFlags));
  DIR* entries = own.valid() ? fdopendir(own.get()) : nullptr;
  if (entries == nullptr) return FailErrno(path_, errno);
  static_cast<void>(own.Release());
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Fd> Folder::OpenFile(const std::string& name, int flags) const {
  // O_NONBLOCK: a FIFO that somebody put there must not hold us. openat2 wants none beside O_PATH.
  const int careful = (flags & O_PATH) != 0 ? 0 : O_NONBLOCK | O_NOCTTY;
  Fd fd(OpenIn(fd_.get(), name, flags | careful));
  if (!fd.valid() && (errno == ELOOP || errno == ENXIO))
    return Fail(Code::kDataLoss, In(name) + ": not a regular file");
  if (!fd.valid()) return FailErrno(In(name), errno);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return FailErrno(In(name), errno);
  if (!S_ISREG(info.st_mode)) return Fail(Code::kDataLoss, In(name) + ": not a regular file");
  // A second name may stand in somebody else's folder.
  if (info.st_nlink > 1) return Fail(Code::kDataLoss, In(name) + ": has more than one name");
  return fd;
}

Result<std::string> Folder::Read(const std::string& name, std::size_t max_bytes) const {
  const Result<Fd> fd = OpenFile(name, O_RDONLY);
  if (!fd) return Fail(fd.error());
  return ReadDescriptor(fd->get(), In(name), max_bytes);
}

Status Folder::WriteAtomic(const std::string& name, std::string_view text, mode_t mode) const {
  const std::string temporary = name + ".new." + std::to_string(getpid());
  unlinkat(fd_.get(), temporary.c_str(), 0);  // a crashed predecessor of the same pid
  const Fd fd(OpenIn(fd_.get(), temporary, O_RDWR | O_CREAT | O_EXCL, mode));
  if (!fd.valid()) return FailErrno(In(name), errno);
  Status written = fchmod(fd.get(), mode) == 0 ? WriteDescriptor(fd.get(), In(name), text)
                                               : Status(FailErrno(In(name), errno));
  if (written) written = Rename(temporary, name);
  if (!written) unlinkat(fd_.get(), temporary.c_str(), 0);
  return written;
}

Status Folder::Rename(const std::string& from, const std::string& to) const {
  if (renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) != 0)
    return FailErrno(In(to), errno);
  return {};
}

Status Folder::RemoveTree(const std::string& name) const { return Remove(name, 0); }

Status Folder::Remove(const std::string& name, int depth) const {
  constexpr int kMaxDepth = 8;  // deeper than anything that Tessera makes
  if (depth > kMaxDepth) return Fail(Code::kDataLoss, path_ + ": nested too deeply");
  if (unlinkat(fd_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  const int error = errno;
  if (error != EISDIR && error != EPERM) return FailErrno(In(name), error);
  Fd fd(OpenIn(fd_.get(), name, kFolderFlags));
  if (!fd.valid()) {
    if (errno == ENOENT) return {};
    if (errno == EXDEV) return Fail(Code::kFailedPrecondition, In(name) + ": another file system");
    return FailErrno(In(name), errno == ENOTDIR ? error : errno);
  }
  const Result<Folder> inner = Of(std::move(fd), In(name));
  if (!inner) return Fail(inner.error());
  const Result<std::vector<std::string>> entries = inner->List();
  if (!entries) return Fail(entries.error());
  for (const std::string& entry : *entries) {
    if (Status removed = inner->Remove(entry, depth + 1); !removed) return removed;
  }
  if (unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return FailErrno(In(name), errno);
  return {};
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace tessera::base
