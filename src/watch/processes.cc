#include "watch/processes.h"

#include <dirent.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "node/process_memory.h"

namespace tessera::watch {
namespace {

constexpr std::size_t kMostMaps = std::size_t{16}
                                  << 20;  // of /proc/PID/maps; a PyTorch process has 1 MiB
constexpr std::size_t kMostCommandLine = 256;

// "7f..-7f.. r-xp 00000000 fe:01 1234    /usr/lib/libcuda.so.1"
struct MapLine {
  FileIdentity file;
  std::string_view name;  // last component of the path
};

std::optional<MapLine> ParseMapLine(std::string_view line) {
  std::array<std::string_view, 5> words;
  std::size_t at = 0;
  for (std::string_view& word : words) {
    at = line.find_first_not_of(' ', at);
    if (at == std::string_view::npos) return std::nullopt;
    const std::size_t end = std::min(line.find(' ', at), line.size());
    word = line.substr(at, end - at);
    at = end;
  }
  MapLine parsed;
  unsigned major = 0, minor = 0;
  const std::string_view device = words[3];
  const std::size_t colon = device.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::from_chars(device.data(), device.data() + colon, major, 16);
  std::from_chars(device.data() + colon + 1, device.data() + device.size(), minor, 16);
  std::from_chars(words[4].data(), words[4].data() + words[4].size(), parsed.file.inode);
  parsed.file.device = makedev(major, minor);
  at = line.find_first_not_of(' ', at);
  if (at != std::string_view::npos) {
    const std::string_view path = line.substr(at);
    parsed.name = path.substr(path.rfind('/') + 1);  // npos + 1 = 0: the whole
  }
  return parsed;
}

void LookAtLines(std::string_view lines, const FileIdentity& ledger, Mapped& mapped) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::optional<MapLine> line = ParseMapLine(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (!line) continue;
    if (line->name.starts_with("libtessera") && line->name.find(".so") != std::string_view::npos) {
      mapped.fence = true;
    }
    if (line->name.starts_with("libcuda.so")) mapped.driver = true;
    if (ledger.inode != 0 && line->file == ledger) mapped.ledger = true;
  }
}

class ProcFs : public Processes {
 public:
  std::vector<ProcessEntry> All() override {
    memory_ = nullptr;
    std::vector<ProcessEntry> all;
    const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
    if (!proc) return all;
    while (const dirent* entry = readdir(proc.get())) {
      pid_t pid = 0;
      const std::string_view name = entry->d_name;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (error != std::errc{} || end != name.data() + name.size()) continue;
      const Result<base::ProcessStat> stat = base::ReadProcessStat(pid);
      if (!stat) continue;  // ended meanwhile
      all.push_back({stat->identity, stat->parent, stat->state, Printable(stat->command),
                     base::NamespaceInode(pid, "mnt"), base::NamespaceInode(pid, "pid")});
    }
    std::sort(all.begin(), all.end(), [](const ProcessEntry& a, const ProcessEntry& b) {
      return a.identity.pid < b.identity.pid;
    });
    return all;
  }

  std::string CommandLine(const ProcessEntry& process) override {
    const Result<std::string> read =
        memory().Read(process.identity.pid, "cmdline", kMostCommandLine);
    if (!read) return process.command;
    std::string text = *read;
    while (!text.empty() && text.back() == '\0') text.pop_back();
    std::replace(text.begin(), text.end(), '\0', ' ');
    return text.empty() ? process.command : Printable(text);
  }

  std::optional<Mapped> Maps(pid_t pid, const FileIdentity& ledger) override {
    const Result<std::string> text = memory().Read(pid, "maps", kMostMaps);
    if (!text) return std::nullopt;
    Mapped mapped;
    LookAtLines(*text, ledger, mapped);
    return mapped;
  }

  std::optional<uid_t> UserOf(pid_t pid) override { return base::RealUser(pid); }

  node::SeenPolicy PolicyOf(pid_t pid) override { return node::PolicySeenBy(pid); }

  void EndLook() override { memory_ = nullptr; }

 private:
  node::ProcessMemory& memory() {
    if (!memory_) memory_ = std::make_unique<node::ProcessMemory>();
    return *memory_;
  }
  std::unique_ptr<node::ProcessMemory> memory_;  // of the look that All() began
};

// Length of the UTF-8 sequence that `text` starts with; 0 when it is none.
std::size_t SequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) >= 0xf0 && byte(0) < 0xf5   ? 4
                             : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                             : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                                                                 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond Unicode, and the C1 controls (terminals obey them).
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;
  if (byte(0) == 0xed && byte(1) >= 0xa0) return 0;
  if (byte(0) == 0xf0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xf4 && byte(1) >= 0x90) return 0;
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return 0;
  return length;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    std::size_t length = 1;
    if (first >= 0x20 && first < 0x7f) {
      result += text[0];
    } else if (const std::size_t sequence = SequenceLength(text); sequence > 0) {
      result += text.substr(0, sequence);
      length = sequence;
    } else {
      result += '?';
    }
    text.remove_prefix(length);
  }
  return result;
}

Processes& RealProcesses() {
  static ProcFs processes;
  return processes;
}

}  // namespace tessera::watch
