#include "node/context_cost.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/files.h"
#include "base/folder.h"
#include "base/log.h"
#include "contract/names.h"
#include "driver/nvml.h"
#include "node/ask_child.h"

namespace tessera::node {
namespace {

constexpr std::int64_t kWaitNs = 30'000'000'000;  // a first context on a cold machine takes seconds
constexpr char kFolder[] = "context-cost";
constexpr std::size_t kMostText = 64;

// Makes a context on the one card that CUDA_VISIBLE_DEVICES leaves and reads what the driver then
// counts for this process.
std::string MeasureHere(const model::Card& card) {
  ::setenv("CUDA_VISIBLE_DEVICES", ToString(card.uuid).c_str(), 1);
  void* cuda = ::dlopen(contract::kCudaLibrary, RTLD_NOW);
  if (cuda == nullptr) return "0";
  auto* init = reinterpret_cast<int (*)(unsigned)>(::dlsym(cuda, "cuInit"));
  auto* create = reinterpret_cast<int (*)(void**, unsigned, int)>(::dlsym(cuda, "cuCtxCreate_v2"));
  void* context = nullptr;
  if (init == nullptr || create == nullptr || init(0) != 0 || create(&context, 0, 0) != 0)
    return "0";
  Result<std::unique_ptr<driver::Nvml>> nvml = driver::OpenNvml({});
  if (!nvml) return "0";
  Result<std::vector<Result<driver::CardUsage>>> usages = (*nvml)->Usages();
  if (!usages || card.index < 0 || static_cast<std::size_t>(card.index) >= usages->size())
    return "0";
  const Result<driver::CardUsage>& usage = (*usages)[static_cast<std::size_t>(card.index)];
  if (!usage) return "0";
  for (const driver::ProcessMemory& process : usage->processes) {
    if (process.pid == static_cast<std::uint32_t>(::getpid()) && process.bytes)
      return std::to_string(*process.bytes);
  }
  return "0";
}

std::optional<std::uint64_t> ParseBytes(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::uint64_t bytes = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return bytes;
}

// The folder is shared by all users of the machine: only what root or this user wrote is believed.
std::optional<std::uint64_t> Remembered(const std::optional<base::Folder>& folder,
                                        const std::string& name, std::uint64_t card_bytes) {
  if (!folder) return std::nullopt;
  const Result<base::Fd> file = folder->OpenFile(name, O_RDONLY);
  struct stat info{};
  if (!file || fstat(file->get(), &info) != 0) return std::nullopt;
  if (info.st_uid != 0 && info.st_uid != geteuid()) return std::nullopt;
  const Result<std::string> text = base::ReadDescriptor(file->get(), name, kMostText);
  if (!text) return std::nullopt;
  std::optional<std::uint64_t> bytes = ParseBytes(*text);
  if (!bytes || *bytes == 0 || *bytes >= card_bytes) return std::nullopt;
  return bytes;
}

std::optional<base::Folder> OpenCosts(const StateRoot& root) {
  Result<base::Folder> folder = base::Folder::Open(root.path + "/" + kFolder);
  if (!folder) return std::nullopt;
  return std::move(*folder);
}

bool Wanted(const model::Card& card, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& name) {
           return name == std::to_string(card.index) || name == ToString(card.uuid);
         });
}

}  // namespace

void FillContextCosts(const StateRoot& root, const std::vector<std::string>& only,
                      model::Node& node) {
  std::optional<base::Folder> folder = OpenCosts(root);
  bool said = false;
  for (model::Card& card : node.cards) {
    if (!card.healthy || card.mig_enabled || !Wanted(card, only)) continue;
    const std::string name = ToString(card.uuid) + "-" + node.driver_version + "-" +
                             std::to_string(geteuid() == 0 ? 0 : geteuid());
    std::optional<std::uint64_t> bytes = Remembered(folder, name, card.memory_bytes);
    if (!bytes) {
      if (!said) base::Detail("measuring what a context takes on each card, once for this driver");
      said = true;
      Result<std::string> text = AskChild([&card] { return MeasureHere(card); }, kWaitNs);
      bytes = text ? ParseBytes(*text) : std::nullopt;
      if (bytes && *bytes > 0 && *bytes < card.memory_bytes) {
        // Remembering is a saving, not a need: on a full or read-only disk it is measured again
        // next time.
        const std::string path = root.path + "/" + kFolder;
        static_cast<void>(base::MakeDirectory(path, root.shared ? 01777 : 0700));
        if (!folder) folder = OpenCosts(root);
        if (folder)
          static_cast<void>(folder->WriteAtomic(name, std::to_string(*bytes) + "\n", 0644));
      }
    }
    if (bytes && *bytes < card.memory_bytes) card.context_bytes = *bytes;
  }
}

}  // namespace tessera::node
