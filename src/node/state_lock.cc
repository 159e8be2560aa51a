#include "node/state_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/folder.h"
#include "node/slice_folder.h"
#include "node/store.h"

namespace tessera::node {
namespace {

constexpr char kLock[] = "lock";

// The file, made when it is missing, with the owner and mode that go with the folder of slices.
Result<base::Fd> OpenLock(const base::Folder& state, const base::Folder& slices) {
  const std::string path = state.path() + "/" + kLock;
  // Opened without O_CREAT first: in a sticky directory the kernel (fs.protected_regular) refuses
  // O_CREAT on a file that another user made. For flock reading is enough.
  Result<base::Fd> file = state.OpenFile(kLock, O_RDONLY);
  if (!file && file.error().code == Code::kNotFound) {
    base::Fd made(openat(state.fd(), kLock, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made.valid()) return FailErrno(path, errno);
    file = std::move(made);
  }
  if (!file) return file;
  struct stat info{};
  if (fstat(file->get(), &info) != 0) return FailErrno(path, errno);
  if (info.st_uid != 0 && info.st_uid != geteuid() && info.st_uid != slices.owner()) {
    return Fail(Code::kPermissionDenied, path + ": belongs to user " + std::to_string(info.st_uid) +
                                             ", who could replace it; root removes it by running "
                                             "tessera there once");
  }
  const mode_t mode = (slices.mode() & (S_IWGRP | S_IWOTH)) != 0 ? 0644 : 0600;
  if (geteuid() == 0 && info.st_uid != slices.owner() &&
      fchown(file->get(), slices.owner(), static_cast<gid_t>(-1)) != 0) {
    return FailErrno(path, errno);
  }
  if ((info.st_mode & 07777) != mode && fchmod(file->get(), mode) != 0 && errno != EPERM)
    return FailErrno(path, errno);
  return file;
}

Result<base::Fd> OpenLockOf(const std::string& path) {
  const Result<base::Folder> state = base::Folder::OpenParentOf(path + "/" + kLock);
  if (!state) return Fail(state.error());
  const Result<base::Folder> slices = OpenSlices(path);
  if (!slices) return Fail(slices.error());
  Result<base::Fd> file = OpenLock(*state, *slices);
  if (!file && file.error().code == Code::kPermissionDenied && geteuid() == 0) {
    if (Status removed = state->RemoveTree(kLock); !removed) return Fail(removed.error());
    return OpenLock(*state, *slices);
  }
  return file;
}

}  // namespace

Status MakeStateLock(const std::string& state) {
  const Result<base::Fd> file = OpenLockOf(state);
  if (!file) return Fail(file.error());
  return {};
}

Result<base::FileLock> AcquireStateLock(const std::string& state, base::Clock& clock) {
  const std::string path = state + "/" + kLock;
  constexpr int kTries = 3;  // a lock that was put in another's place meanwhile locks nothing
  for (int i = 0; i < kTries; ++i) {
    Result<base::Fd> file = OpenLockOf(state);
    if (!file) return Fail(file.error());
    Result<base::FileLock> lock =
        base::FileLock::Acquire(std::move(*file), path, kLockWaitNs, clock);
    if (!lock) return lock;
    struct stat held{}, there{};
    if (fstat(lock->fd(), &held) == 0 && lstat(path.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      return lock;
    }
  }
  return Fail(Code::kUnavailable, path + ": was replaced while it was waited for");
}

}  // namespace tessera::node
