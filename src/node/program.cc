#include "node/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/fd.h"
#include "base/plain_text.h"
#include "node/child.h"

namespace tessera::node {
namespace {

constexpr std::size_t kHeadBytes = 4096;  // an ELF header, or a "#!" line
constexpr int kMostScriptLevels = 4;      // as the kernel's binfmt_script allows

bool IsExecutableFile(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// At most `bytes` from `offset` on; empty when the file cannot be read or ends before.
std::string ReadAt(const std::string& path, std::uint64_t offset, std::size_t bytes) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() || offset > std::numeric_limits<off_t>::max() - bytes) return "";
  std::string text(bytes, '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), static_cast<off_t>(offset));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::string HeadOf(const std::string& path) { return ReadAt(path, 0, kHeadBytes); }

// The interpreter of a "#!" line; empty when there is none.
std::string ScriptInterpreter(const std::string& head) {
  if (head.compare(0, 2, "#!") != 0) return "";
  std::size_t start = head.find_first_not_of(" \t", 2);
  if (start == std::string::npos) return "";
  std::size_t end = head.find_first_of(" \t\n", start);
  return head.substr(start, end == std::string::npos ? end : end - start);
}

// PT_INTERP of a 64-bit ELF file; empty when it has none. Both may stand anywhere in the file:
// tools that lengthen a program's interpreter or library path move them to its end.
std::string ElfInterpreter(const std::string& path, const std::string& head) {
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "";
  const std::string table =
      ReadAt(path, header.e_phoff, std::size_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (std::size_t at = 0; at + sizeof(Elf64_Phdr) <= table.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr segment;
    std::memcpy(&segment, table.data() + at, sizeof segment);
    if (segment.p_type != PT_INTERP) continue;
    const std::string text =
        ReadAt(path, segment.p_offset, std::min<std::uint64_t>(segment.p_filesz, PATH_MAX));
    return text.substr(0, text.find('\0'));
  }
  return "";
}

}  // namespace

Result<std::string> FindProgram(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    if (IsExecutableFile(command)) return command;
    if (access(command.c_str(), F_OK) != 0 && errno == ENOENT) {
      return Fail(Code::kNotFound, "command: '" + base::Shown(command) + "' is not there");
    }
    return Fail(Code::kPermissionDenied,
                "command: '" + base::Shown(command) + "' may not be executed");
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
  if (seen)
    return Fail(Code::kPermissionDenied,
                "command: '" + base::Shown(command) + "' may not be executed");
  return Fail(Code::kNotFound, "command: '" + base::Shown(command) + "' is not in PATH");
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
  kind.interpreter = ElfInterpreter(kind.file, head);
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
  if (program.interpreter.empty()) return false;
  ChildPlan plan;
  plan.what = "loader";
  plan.wait_ns = 5'000'000'000;
  plan.speaks = ChildSpeaks::kByStdout;
  const Result<ChildEnd> end = RunChild(plan, [&program](int) {
    execl(program.interpreter.c_str(), program.interpreter.c_str(), "--list", program.file.c_str(),
          nullptr);
    return 127;
  });
  return end && end->output.find(library) != std::string::npos;
}

}  // namespace tessera::node
