// Files that the fence itself creates, and facts about the own program image.
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "os/os.h"
#include "os/system_call.h"

namespace tessera::fence::os {
namespace {

// struct stat of the kernel differs between machines and libc's fstat is too new a symbol; statx is
// one for all, with the old call as a fallback on kernels before 4.11.
constexpr int kEmptyPath = 0x1000;  // AT_EMPTY_PATH
constexpr long kReadOnlyMount = 1;  // ST_RDONLY

int Result(long value) { return static_cast<int>(value); }

}  // namespace

bool Describe(int descriptor, FileFacts* facts) {
  struct statx found;
  std::memset(&found, 0, sizeof found);
  if (SystemCall(SYS_statx, descriptor, "", kEmptyPath, STATX_BASIC_STATS, &found) != 0)
    return false;
  facts->regular = (found.stx_mode & 0170000) == 0100000;
  facts->owner = found.stx_uid;
  facts->mode = found.stx_mode & 07777;
  facts->bytes = found.stx_size;
  facts->inode = found.stx_ino;
  facts->device = std::uint64_t{found.stx_dev_major} << 32 | found.stx_dev_minor;
  return true;
}

bool OnReadOnlyMount(int descriptor) {
  struct statfs found;
  std::memset(&found, 0, sizeof found);
  return SystemCall(SYS_fstatfs, descriptor, &found) == 0 && (found.f_flags & kReadOnlyMount) != 0;
}

int OpenFolder(const char* path) {
  return Result(SystemCall(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
}

int OpenIn(int folder, const char* name, Access access) {
  const int flags = access == Access::kRead ? O_RDONLY : O_RDWR;
  return Result(SystemCall(SYS_openat, folder, name,
                           flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0));
}

int OpenNoFollow(const char* path) {
  return Result(
      SystemCall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0));
}

int CreateNew(const char* path, std::size_t bytes) {
  const int descriptor = Result(SystemCall(
      SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0600));
  if (descriptor < 0) return descriptor;
  if (const int done = Result(SystemCall(SYS_ftruncate, descriptor, static_cast<long>(bytes)));
      done < 0) {
    Close(descriptor);
    Remove(path);
    return done;
  }
  return descriptor;
}

int Link(const char* from, const char* to) {
  return Result(SystemCall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

void Remove(const char* path) { SystemCall(SYS_unlinkat, AT_FDCWD, path, 0); }

namespace {

constexpr int kGetLock = 36, kSetLock = 37;  // F_OFD_GETLK, F_OFD_SETLK (Linux 3.15)
constexpr std::size_t kPage = 4096;
constexpr int kDontFork = 10;  // MADV_DONTFORK

struct flock WriteLock(std::uint64_t offset) {
  struct flock lock;
  std::memset(&lock, 0, sizeof lock);
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = 1;
  return lock;
}

}  // namespace

// Such a lock belongs to the open file, and a mapping keeps that open after its descriptor is
// closed.
int LockForLife(int descriptor, std::uint64_t offset) {
  struct flock lock = WriteLock(offset);
  if (const int done = Result(SystemCall(SYS_fcntl, descriptor, kSetLock, &lock)); done < 0)
    return done;
  void* map = MapShared(descriptor, kPage, Access::kRead);
  if (map == nullptr) return -ENOMEM;
  const int done = Result(SystemCall(SYS_madvise, map, kPage, kDontFork));
  if (done < 0) Unmap(map, kPage);
  return done;
}

int IsLocked(int descriptor, std::uint64_t offset) {
  struct flock lock = WriteLock(offset);
  const int done = Result(SystemCall(SYS_fcntl, descriptor, kGetLock, &lock));
  return done < 0 ? done : lock.l_type != F_UNLCK;
}

std::uint32_t UserId() { return static_cast<std::uint32_t>(SystemCall(SYS_geteuid)); }

bool ProcessExists(int pid) { return SystemCall(SYS_kill, pid, 0) != -ESRCH; }

std::uint64_t ImageRandom() {
  constexpr std::uint64_t kRandom = 25;  // AT_RANDOM
  alignas(8) char buffer[1024];
  const long bytes = ReadFile("/proc/self/auxv", buffer);
  for (long at = 0; at + 16 <= bytes; at += 16) {
    std::uint64_t pair[2];
    std::memcpy(pair, buffer + at, sizeof pair);
    if (pair[0] != kRandom || pair[1] == 0) continue;
    std::uint64_t random;
    std::memcpy(&random, reinterpret_cast<const void*>(pair[1]), sizeof random);
    return random;
  }
  return 0;
}

}  // namespace tessera::fence::os
