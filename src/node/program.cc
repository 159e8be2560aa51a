#include "node/program.h"

#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"

namespace tessera::node {
namespace {

constexpr std::size_t kHeadBytes =
    64 << 10;                         // program headers stand near the start of every file in use
constexpr int kMostScriptLevels = 4;  // as the kernel's binfmt_script allows

bool IsExecutableFile(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string HeadOf(const std::string& path) {
  base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return "";
  std::string head(kHeadBytes, '\0');
  ssize_t got = read(fd.get(), head.data(), head.size());
  head.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return head;
}

// The interpreter of a "#!" line; empty when there is none.
std::string ScriptInterpreter(const std::string& head) {
  if (head.compare(0, 2, "#!") != 0) return "";
  std::size_t start = head.find_first_not_of(" \t", 2);
  if (start == std::string::npos) return "";
  std::size_t end = head.find_first_of(" \t\n", start);
  return head.substr(start, end == std::string::npos ? end : end - start);
}

// PT_INTERP of a 64-bit ELF file; empty when it has none.
std::string ElfInterpreter(const std::string& head) {
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    std::size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    if (header.e_phentsize != sizeof(Elf64_Phdr) || at > head.size() - sizeof(Elf64_Phdr))
      return "";
    Elf64_Phdr segment;
    std::memcpy(&segment, head.data() + at, sizeof segment);
    if (segment.p_type != PT_INTERP) continue;
    if (segment.p_offset > head.size() || segment.p_filesz > head.size() - segment.p_offset)
      return "";
    const char* text = head.data() + segment.p_offset;
    return std::string(text, strnlen(text, segment.p_filesz));
  }
  return "";
}

}  // namespace

Result<std::string> FindProgram(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    if (IsExecutableFile(command)) return command;
    if (access(command.c_str(), F_OK) != 0 && errno == ENOENT) {
      return Fail(Code::kNotFound, "command: '" + command + "' is not there");
    }
    return Fail(Code::kPermissionDenied, "command: '" + command + "' may not be executed");
  }
  const char* variable = getenv("PATH");
  std::string path = variable != nullptr ? variable : "/bin:/usr/bin";  // as execvp without PATH
  bool seen = false;
  for (std::size_t start = 0; start <= path.size();) {
    std::size_t end = std::min(path.find(':', start), path.size());
    std::string folder = path.substr(start, end - start);
    std::string candidate = (folder.empty() ? "." : folder) + "/" + command;
    if (IsExecutableFile(candidate)) return candidate;
    struct stat info{};
    seen = seen || (stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode));
    start = end + 1;
  }
  if (seen) return Fail(Code::kPermissionDenied, "command: '" + command + "' may not be executed");
  return Fail(Code::kNotFound, "command: '" + command + "' is not in PATH");
}

bool IsElf(const std::string& path) { return HeadOf(path).compare(0, SELFMAG, ELFMAG) == 0; }

ProgramKind InspectProgram(const std::string& path) {
  ProgramKind kind;
  kind.file = path;
  std::string head = HeadOf(path);
  for (int level = 0; level < kMostScriptLevels; ++level) {
    std::string interpreter = ScriptInterpreter(head);
    if (interpreter.empty()) break;
    kind.file = interpreter;
    head = HeadOf(interpreter);
  }
  if (head.size() < sizeof(Elf64_Ehdr) || head.compare(0, SELFMAG, ELFMAG) != 0) {
    kind.fenceable = true;
    return kind;
  }
  if (head[EI_CLASS] != ELFCLASS64) {
    kind.reason = "is a 32-bit program";
    return kind;
  }
  kind.interpreter = ElfInterpreter(head);
  if (kind.interpreter.empty()) {
    kind.reason = "is statically linked";
  } else if (kind.interpreter.find("musl") != std::string::npos) {
    kind.reason = "uses musl, which preloads nothing from /etc/ld.so.preload";
  } else {
    kind.fenceable = true;
  }
  return kind;
}

bool LoaderLoads(const ProgramKind& program, const std::string& library) {
  constexpr std::int64_t kWaitNs = 5'000'000'000;
  int ends[2];
  if (program.interpreter.empty() || pipe2(ends, O_CLOEXEC) != 0) return false;
  base::Fd from(ends[0]), to(ends[1]);
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(to.get(), STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl(program.interpreter.c_str(), program.interpreter.c_str(), "--list", program.file.c_str(),
          nullptr);
    _exit(127);
  }
  to = base::Fd();
  std::string text;
  std::int64_t deadline = base::RealClock().NowNs() + kWaitNs;
  for (;;) {
    std::int64_t left_ms = (deadline - base::RealClock().NowNs()) / 1'000'000;
    pollfd ready{from.get(), POLLIN, 0};
    if (left_ms <= 0 || poll(&ready, 1, static_cast<int>(left_ms)) == 0) break;
    char buffer[4096];
    ssize_t got = read(from.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
    constexpr std::size_t kMostText = 1 << 20;
    if (text.size() > kMostText) break;
  }
  kill(child, SIGKILL);  // has ended already when all went well
  waitpid(child, nullptr, 0);
  return text.find(library) != std::string::npos;
}

}  // namespace tessera::node
