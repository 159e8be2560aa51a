// Identity of processes as the kernel tells it in /proc, and fork.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "os/os.h"
#include "os/system_call.h"

extern "C" {
// Absent in musl, where the fence stays inert.
[[gnu::weak]] int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
}

namespace tessera::fence::os {
namespace {

constexpr std::size_t kMaxForkFunctions = 8;
void (*fork_functions[kMaxForkFunctions])();
std::uint32_t fork_function_count = 0;

void RunForkFunctions() {
  for (auto function : fork_functions) {
    if (function != nullptr) function();
  }
}

// "/proc/PID/stat" for pid > 0.
void StatPath(int pid, std::span<char, 32> path) {
  char digits[12];
  std::size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + pid % 10);
    pid /= 10;
  } while (pid > 0);
  std::size_t at = 0;
  for (char c : std::string_view("/proc/")) path[at++] = c;
  while (count > 0) path[at++] = digits[--count];
  for (char c : std::string_view("/stat")) path[at++] = c;
  path[at] = '\0';
}

// Inode of a namespace, 0 if unknown.
std::uint64_t NamespaceOf(const char* path) {
  char link[64];
  const long bytes = SystemCall(SYS_readlinkat, -100 /* AT_FDCWD */, path, link, sizeof link);
  std::uint64_t inode = 0;  // "pid:[4026531836]"
  for (long i = 0; i < bytes; ++i) {
    if (link[i] >= '0' && link[i] <= '9')
      inode = inode * 10 + static_cast<std::uint64_t>(link[i] - '0');
  }
  return inode;
}

}  // namespace

ProcessStat ParseProcessStat(std::string_view text) {
  // Field 2 is "(comm)", where comm is any 15 bytes: only the last ')' ends it.
  const std::size_t close = text.rfind(')');
  if (close == std::string_view::npos || close + 2 >= text.size() || text[close + 1] != ' ')
    return {};
  ProcessStat stat;
  std::size_t at = close + 2;
  stat.state = text[at];
  for (int field = 3; at < text.size(); ++field) {
    std::uint64_t value = 0;
    std::size_t end = at;
    bool number = true;
    for (; end < text.size() && text[end] != ' ' && text[end] != '\n'; ++end) {
      if (text[end] < '0' || text[end] > '9') {
        number = false;
        continue;
      }
      value = value * 10 + static_cast<std::uint64_t>(text[end] - '0');
    }
    if (!number) value = 0;
    if (field == 20) stat.threads = static_cast<int>(value);
    if (field == 22) {
      stat.start_ticks = value;
      stat.ok = number && end > at;
    }
    if (field == 28) {
      stat.stack_start = value;
      break;
    }
    at = end + 1;
  }
  return stat;
}

ProcessStat ReadProcessStat(int pid) {
  if (pid <= 0) return {};
  char path[32];
  StatPath(pid, path);
  char text[1024];
  const long bytes = ReadFile(path, text);
  if (bytes <= 0) return {};
  return ParseProcessStat({text, static_cast<std::size_t>(bytes)});
}

std::uint64_t PidNamespace() { return NamespaceOf("/proc/self/ns/pid"); }
std::uint64_t TimeNamespace() { return NamespaceOf("/proc/self/ns/time"); }

void CommandName(std::span<char, 16> name) {
  char text[32];
  const long bytes = ReadFile("/proc/self/comm", text);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool inside = static_cast<long>(i) < bytes && i + 1 < name.size() && text[i] != '\n';
    name[i] = inside ? text[i] : '\0';
    if (!inside) {
      for (std::size_t j = i; j < name.size(); ++j) name[j] = '\0';
      break;
    }
  }
}

bool OnFork(void (*child)()) {
  if (__register_atfork == nullptr) return false;
  const std::uint32_t index = std::atomic_ref(fork_function_count).fetch_add(1);
  if (index >= kMaxForkFunctions) return false;
  fork_functions[index] = child;
  if (index != 0) return true;
  return __register_atfork(nullptr, nullptr, RunForkFunctions, nullptr) == 0;
}

}  // namespace tessera::fence::os
