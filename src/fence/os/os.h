// Everything of the operating system that the fence uses. No other file of the fence calls libc,
// except for the memory functions that a compiler emits by itself (memcpy, memset, memcmp, memmove,
// strlen).
//
// Errors: functions that return int or long give a negative errno on failure.
// Thread safety: every function may be called from any thread; none keeps a lock across a call into
// the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace tessera::fence::os {

enum class Access { kRead, kReadWrite };

// Opens an existing file, close-on-exec. A descriptor, or a negative errno.
int Open(const char* path, Access access);
// Opens a directory to find files in it; a file of it, where a symbolic link is an error (-ELOOP).
int OpenFolder(const char* path);
int OpenIn(int folder, const char* name, Access access);
void Close(int descriptor);
// Size in bytes of a regular file; negative errno otherwise.
long FileBytes(int descriptor);
// Shared mapping of the first `bytes` bytes; nullptr on failure.
void* MapShared(int descriptor, std::size_t bytes, Access access);
// Private zeroed memory straight from the kernel; nullptr on failure.
void* MapPrivate(std::size_t bytes);
void Unmap(void* data, std::size_t bytes);
// How many of the bytes from `from` on can be read, at least as far as the kernel was asked: up to
// 128 pages at once. 0 where the first cannot; all that were asked where the kernel does not say.
std::size_t ReadableBytes(const void* from, std::size_t bytes);
// From now on every child that does not share this process' memory finds zeros there, by whatever
// call it was made (Linux 4.14). `data` is zeroed memory of the library's own, whole pages. False
// where the kernel cannot.
bool WipeInChildren(void* data, std::size_t bytes);
// Reads a small file whole (for /proc); bytes read, at most buffer.size().
long ReadFile(const char* path, std::span<char> buffer);

// What is known of an open file.
struct FileFacts {
  bool regular = false;
  std::uint32_t owner = 0;  // uid
  std::uint32_t mode = 0;   // permission bits
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0, device = 0;  // which file it is
};
// False when the descriptor cannot be looked at.
bool Describe(int descriptor, FileFacts* facts);
bool OnReadOnlyMount(int descriptor);
// Opens an existing file for reading and writing; a symbolic link at its end is an error (-ELOOP).
int OpenNoFollow(const char* path);
// Creates a file of `bytes` zero bytes, mode 0600, that did not exist before (-EEXIST). A
// descriptor or a negative errno.
int CreateNew(const char* path, std::size_t bytes);
// Gives the file a second name unless that exists (-EEXIST); removes a name.
int Link(const char* from, const char* to);
void Remove(const char* path);
// Locks one byte of a file until this program image is gone (exit, SIGKILL, exec): the kernel gives
// it up, whatever the program closes. A forked child does not have it. Negative errno where that
// cannot be had, -EAGAIN where another image has it.
int LockForLife(int descriptor, std::uint64_t offset);
// 1 while another open file has the byte locked, 0 while nobody has; negative errno.
int IsLocked(int descriptor, std::uint64_t offset);
std::uint32_t UserId();
// False only when the kernel knows no such process.
bool ProcessExists(int pid);
// The kernel's 8 random bytes of this program image (AT_RANDOM): others after an exec, the same
// after a fork.
std::uint64_t ImageRandom();

// Nanoseconds of CLOCK_MONOTONIC. Coarse: the value of the last tick (1-10 ms old), about 5 ns to
// read.
std::uint64_t MonotonicNs();
std::uint64_t CoarseMonotonicNs();
// Nanoseconds since 1970, the clock of NVML's time stamps.
std::uint64_t RealtimeNs();
void SleepNs(std::uint64_t ns);

// Waits until a wake, at most timeout_ns, or returns at once when *word != value. `word` may be in
// a shared, read-only mapping. Wakes may be spurious.
void FutexWait(const std::uint32_t* word, std::uint32_t value, std::uint64_t timeout_ns);
void FutexWake(const std::uint32_t* word);

int ProcessId();
int ThreadId();

// What /proc/PID/stat says of a process.
struct ProcessStat {
  bool ok = false;                // false: no such process, or not readable
  char state = 0;                 // 'Z', 'X': dead
  std::uint64_t start_ticks = 0;  // field 22: clock ticks since boot
  std::uint64_t stack_start = 0;  // field 28; 0 where the kernel hides it
  int threads = 0;                // field 20
  bool Dead() const { return !ok || ((state == 'Z' || state == 'X') && threads <= 1); }
};
// `text` is the content of /proc/PID/stat. The command in it may hold spaces and parentheses.
ProcessStat ParseProcessStat(std::string_view text);
ProcessStat ReadProcessStat(int pid);
// Inode of /proc/self/ns/pid, 0 if unknown.
std::uint64_t PidNamespace();
// The same of /proc/self/ns/time: who is in another one sees other start times of all processes.
std::uint64_t TimeNamespace();
// /proc/self/comm without the newline, NUL-padded.
void CommandName(std::span<char, 16> name);

// Runs `child` in every forked child, before fork returns there. Registers at most 8 functions.
// False where libc has no such service (musl).
bool OnFork(void (*child)());

// Value of a variable, nullptr if unset or if the process is set-uid. Valid until the program
// changes its environment.
const char* Environment(const char* name);

// All of the environment, "NAME=value", ended by nullptr; of set-uid processes too.
const char* const* EnvironmentEntries();

// Puts `assignment` ("NAME=value", must outlive the swap) in the place of NAME=... in the
// environment, or behind its end where there is none; destroying it puts back what was there.
// Nothing of the program's strings is changed.
//
// Thread safety: one swap at a time (the caller's lock). Other threads may read and change the
// environment meanwhile: what they set or remove stays, this variable included.
class EnvironmentSwap {
 public:
  EnvironmentSwap(std::string_view name, char* assignment);
  ~EnvironmentSwap();
  EnvironmentSwap(const EnvironmentSwap&) = delete;
  EnvironmentSwap& operator=(const EnvironmentSwap&) = delete;
  bool active() const { return active_; }

 private:
  char* former_assignment_ = nullptr;
  char* assignment_ = nullptr;
  bool active_ = false;
};

// One line on stderr in one write: "tessera: " + parts + newline.
void Complain(std::initializer_list<std::string_view> parts);

// A lock for short critical sections without driver calls.
// Invariant: the holder never waits for anything while it holds the lock. What this thread has left
// by longjmp is its own again at once (os/holder.h); a handler that has interrupted it does not
// wait.
class SpinMutex {
 public:
  // False after timeout_ns without success: the caller goes on without the lock's protection by
  // refusing its work.
  [[nodiscard]] bool LockFor(std::uint64_t timeout_ns);
  bool TryLock();
  void Unlock();

 private:
  void Note();

  std::uint32_t word_ = 0;    // 0 free, 1 held, 2 held with waiters
  std::uint64_t holder_ = 0;  // atomic; the thread, 0 = not told
  std::uint64_t frame_ = 0;   // atomic; where it took the lock
};

}  // namespace tessera::fence::os
