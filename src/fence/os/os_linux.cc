#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/holder.h"
#include "os/os.h"
#include "os/system_call.h"

namespace tessera::fence::os {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

timespec ToTimespec(std::uint64_t ns) {
  return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

std::uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

void* Map(std::size_t bytes, int protection, int flags, int descriptor) {
  const long result = SystemCall(SYS_mmap, 0L, bytes, protection, flags, descriptor, 0);
  return result < 0 && result > -4096 ? nullptr : reinterpret_cast<void*>(result);
}

}  // namespace

int Open(const char* path, Access access) {
  const int flags =
      (access == Access::kRead ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  return static_cast<int>(SystemCall(SYS_openat, AT_FDCWD, path, flags, 0));
}

void Close(int descriptor) { SystemCall(SYS_close, descriptor); }

long FileBytes(int descriptor) { return SystemCall(SYS_lseek, descriptor, 0L, SEEK_END); }

void* MapShared(int descriptor, std::size_t bytes, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  return Map(bytes, protection, MAP_SHARED, descriptor);
}

void* MapPrivate(std::size_t bytes) {
  return Map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void Unmap(void* data, std::size_t bytes) { SystemCall(SYS_munmap, data, bytes); }

std::size_t ReadableBytes(const void* from, std::size_t bytes) {
  constexpr std::size_t kPages = 128;
  constexpr std::uint64_t kPage = 4096;
  char seen[kPages];
  iovec pages[kPages];  // one byte of each
  const iovec into{seen, sizeof seen};
  const auto begin = reinterpret_cast<std::uint64_t>(from);
  const std::uint64_t end = bytes < UINT64_MAX - begin ? begin + bytes : UINT64_MAX;
  std::size_t count = 0;
  std::uint64_t reach = begin;  // behind the last page that is asked about
  for (; count < kPages && reach < end; reach = (reach & ~(kPage - 1)) + kPage)
    pages[count++] = {reinterpret_cast<void*>(reach), 1};
  if (count == 0) return 0;
  const long read = SystemCall(SYS_process_vm_readv, ProcessId(), &into, 1L, pages, count, 0L);
  if (read == -EFAULT) return 0;
  if (read < 0) return bytes;
  const std::uint64_t good = static_cast<std::size_t>(read) < count
                                 ? reinterpret_cast<std::uint64_t>(pages[read].iov_base)
                                 : reach;
  return (good < end ? good : end) - begin;
}

bool WipeInChildren(void* data, std::size_t bytes) {
  constexpr int kWipeOnFork = 18;  // MADV_WIPEONFORK
  return SystemCall(SYS_madvise, data, bytes, kWipeOnFork) == 0;
}

long ReadFile(const char* path, std::span<char> buffer) {
  const int descriptor = Open(path, Access::kRead);
  if (descriptor < 0) return descriptor;
  std::size_t filled = 0;
  long result = 0;
  while (filled < buffer.size()) {
    result = SystemCall(SYS_read, descriptor, buffer.data() + filled, buffer.size() - filled);
    if (result <= 0) break;
    filled += static_cast<std::size_t>(result);
  }
  Close(descriptor);
  return result < 0 ? result : static_cast<long>(filled);
}

std::uint64_t MonotonicNs() { return ReadClock(CLOCK_MONOTONIC); }
std::uint64_t CoarseMonotonicNs() { return ReadClock(CLOCK_MONOTONIC_COARSE); }
std::uint64_t RealtimeNs() { return ReadClock(CLOCK_REALTIME); }

void SleepNs(std::uint64_t ns) {
  timespec left = ToTimespec(ns);
  SystemCall(SYS_nanosleep, &left);
}

void FutexWait(const std::uint32_t* word, std::uint32_t value, std::uint64_t timeout_ns) {
  timespec timeout = ToTimespec(timeout_ns);
  SystemCall(SYS_futex, word, FUTEX_WAIT, value, &timeout);
}

void FutexWake(const std::uint32_t* word) { SystemCall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff); }

int ProcessId() { return static_cast<int>(SystemCall(SYS_getpid)); }
int ThreadId() { return static_cast<int>(SystemCall(SYS_gettid)); }

void Complain(std::initializer_list<std::string_view> parts) {
  char line[1024];
  std::size_t used = 0;
  auto append = [&](std::string_view text) {
    for (char c : text) {
      if (used == sizeof line - 1) return;
      // A variable's value is the tenant's text: keep it on one line.
      line[used++] = static_cast<unsigned char>(c) < ' ' ? '?' : c;
    }
  };
  append("tessera: ");
  for (std::string_view part : parts) append(part);
  line[used++] = '\n';
  SystemCall(SYS_write, STDERR_FILENO, line, used);
}

// Each frame is that of a member function called by the holder: as deep as the next one's.
void SpinMutex::Note() {
  std::atomic_ref(frame_).store(StackNow(), std::memory_order_relaxed);
  std::atomic_ref(holder_).store(ThisThread(), std::memory_order_relaxed);
}

bool SpinMutex::TryLock() {
  std::uint32_t expected = 0;
  if (!std::atomic_ref(word_).compare_exchange_strong(expected, 1, std::memory_order_acquire))
    return false;
  Note();
  return true;
}

bool SpinMutex::LockFor(std::uint64_t timeout_ns) {
  std::atomic_ref holder(holder_);
  if (holder.load(std::memory_order_relaxed) == ThisThread()) {
    if (!WasLeft(std::atomic_ref(frame_).load(std::memory_order_relaxed), StackNow())) return false;
    Note();
    return true;
  }
  for (int spin = 0; spin < 64; ++spin) {
    if (TryLock()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  const std::uint64_t deadline = MonotonicNs() + timeout_ns;
  std::atomic_ref word(word_);
  while (word.exchange(2, std::memory_order_acquire) != 0) {
    const std::uint64_t now = MonotonicNs();
    if (now >= deadline) return false;
    FutexWait(&word_, 2, deadline - now);
  }
  Note();
  return true;
}

void SpinMutex::Unlock() {
  std::atomic_ref(holder_).store(0, std::memory_order_relaxed);
  if (std::atomic_ref(word_).exchange(0, std::memory_order_release) == 2) FutexWake(&word_);
}

}  // namespace tessera::fence::os
