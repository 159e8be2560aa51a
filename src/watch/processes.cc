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
    if (!text || text->empty()) return std::nullopt;
    Mapped mapped;
    LookAtLines(*text, ledger, mapped);
    mapped.whole = text->size() < kMostMaps;
    return mapped;
  }

  std::optional<uid_t> UserOf(pid_t pid) override { return base::RealUser(pid); }

  bool InUserNamespace(pid_t pid, std::uint64_t inode) override {
    return base::IsInUserNamespace(pid, inode);
  }

  node::SeenPolicy PolicyOf(pid_t pid) override { return node::PolicySeenBy(pid); }

  void EndLook() override { memory_ = nullptr; }

 private:
  node::ProcessMemory& memory() {
    if (!memory_) memory_ = std::make_unique<node::ProcessMemory>();
    return *memory_;
  }
  std::unique_ptr<node::ProcessMemory> memory_;  // of the look that All() began
};

}  // namespace

Processes& RealProcesses() {
  static ProcFs processes;
  return processes;
}

}  // namespace tessera::watch
