#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/fd.h"
#include "base/folder.h"

namespace tessera::base {
namespace {

Result<std::string> ReadAll(int fd, const std::string& path, std::size_t max_bytes) {
  std::string text;
  // Not on the stack, which may be as small as the user likes (ulimit -s).
  constexpr std::size_t kStep = 16384;
  for (;;) {
    const std::size_t have = text.size();
    text.resize(have + kStep);
    ssize_t got = read(fd, text.data() + have, kStep);
    const int error = errno;
    text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) return FailErrno(path, error);
    if (got == 0) return text;
    if (text.size() > max_bytes) {
      return Fail(Code::kDataLoss, path + ": longer than " + std::to_string(max_bytes) + " bytes");
    }
  }
}

Status WriteAll(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FailErrno(path, errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

// While it lives, a write beyond `ulimit -f` is an error (EFBIG) like any other and not SIGXFSZ,
// which would end the program with its work half done.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &one, &before_);
  }
  ~NoFileSizeSignal() {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    const timespec none{};
    if (sigismember(&before_, SIGXFSZ) == 0) sigtimedwait(&one, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t before_{};
};

// Opens a new file with exactly `mode`, whatever the umask.
Result<Fd> CreateNew(const std::string& path, mode_t mode) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd.valid()) return FailErrno(path, errno);
  if (fchmod(fd.get(), mode) != 0) {
    int error = errno;
    unlink(path.c_str());
    return FailErrno(path, error);
  }
  return fd;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes) {
  // O_NONBLOCK: a FIFO that somebody put there must not hold us.
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return FailErrno(path, errno);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return FailErrno(path, errno);
  if (!S_ISREG(info.st_mode)) return Fail(Code::kDataLoss, path + ": not a regular file");
  return ReadAll(fd.get(), path, max_bytes);
}

Result<std::string> ReadKernelFile(const std::string& path, std::size_t max_bytes) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FailErrno(path, errno);
  return ReadAll(fd.get(), path, max_bytes);
}

Result<std::string> ReadDescriptor(int fd, const std::string& path, std::size_t max_bytes) {
  return ReadAll(fd, path, max_bytes);
}

Status WriteDescriptor(int fd, const std::string& path, std::string_view text) {
  const NoFileSizeSignal no_signal;
  return WriteAll(fd, path, text);
}

Status WriteFileAtomic(const std::string& path, std::string_view text, mode_t mode) {
  const Result<Folder> folder = Folder::OpenParentOf(path);
  if (!folder) return Fail(folder.error());
  return folder->WriteAtomic(NameOf(path), text, mode);
}

Status CreateWholeFile(const std::string& path, std::string_view text, std::size_t size,
                       mode_t mode) {
  const NoFileSizeSignal no_signal;
  Result<Fd> fd = CreateNew(path, mode);
  if (!fd) return Fail(fd.error());
  int error = 0;
  if (ftruncate(fd->get(), static_cast<off_t>(size)) != 0) error = errno;
  // posix_fallocate reports by its result and would write zeros itself where the file system
  // cannot.
  if (error == 0) error = posix_fallocate(fd->get(), 0, static_cast<off_t>(size));
  Status written = error == 0 ? WriteAll(fd->get(), path, text) : Status(FailErrno(path, error));
  if (!written) unlink(path.c_str());
  return written;
}

Status MakeDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0) {
    // By its descriptor: who owns the folder around it may have put something else there.
    const Fd made(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info{};
    if (!made.valid() || fstat(made.get(), &info) != 0) return FailErrno(path, errno);
    if (info.st_uid != geteuid()) return Fail(Code::kPermissionDenied, path + ": was replaced");
    if (fchmod(made.get(), mode) != 0) return FailErrno(path, errno);
    return {};
  }
  int error = errno;
  if (error == EEXIST && IsDirectory(path)) return {};
  return FailErrno(path, error);
}

bool IsDirectory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  DIR* entries = opendir(path.c_str());
  if (entries == nullptr) return FailErrno(path, errno);
  std::vector<std::string> names;
  while (dirent* entry = readdir(entries)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

Status RemoveTree(const std::string& path) {
  const Result<Folder> folder = Folder::OpenParentOf(path);
  if (!folder) return folder.error().code == Code::kNotFound ? Status() : Fail(folder.error());
  return folder->RemoveTree(NameOf(path));
}

void FillStandardStreams() {
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

Result<std::string> OwnExecutable() {
  char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) return FailErrno("/proc/self/exe", errno);
  return std::string(path, static_cast<std::size_t>(length));
}

}  // namespace tessera::base
