#include "driver/nvml.h"

#include <algorithm>
#include <map>
#include <vector>

#include "driver/bounded_caller.h"
#include "driver/nvml_functions.h"

namespace tessera::driver {
namespace {

constexpr unsigned kMostCards = 64;            // a bound on what a confused driver may claim
constexpr unsigned kMostProcesses = 1u << 16;  // likewise

Error NvmlError(const NvmlFunctions& f, const std::string& what, nvmlReturn_t result) {
  const char* text = f.error_string ? f.error_string(result) : nullptr;
  const std::string message = what + ": " + (text ? text : "error " + std::to_string(result));
  switch (result) {
    case NVML_ERROR_INVALID_ARGUMENT:
      return {Code::kInvalidArgument, message};
    case NVML_ERROR_NO_PERMISSION:
      return {Code::kPermissionDenied, message};
    case NVML_ERROR_NOT_FOUND:
      return {Code::kNotFound, message};
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return {Code::kUnimplemented, message};
    default:
      return {Code::kUnavailable, message};
  }
}

// CUDA cores per SM by compute capability (CUDA programming guide, "Compute Capabilities":
// arithmetic throughput of FP32).
unsigned CoresPerSm(int major, int minor) {
  switch (major) {
    case 5:
      return 128;
    case 6:
      return minor == 0 ? 64 : 128;
    case 7:
      return 64;
    case 8:
      return minor == 0 ? 64 : 128;
    case 9:
    case 10:
    case 11:
    case 12:
      return 128;
    default:
      return 0;
  }
}

std::string Text(const char* chars, std::size_t size) {
  return std::string(chars, std::find(chars, chars + size, '\0'));
}

Result<nvmlDevice_t> Handle(const NvmlFunctions& f, unsigned index) {
  nvmlDevice_t device = nullptr;
  const nvmlReturn_t result = f.handle_by_index(index, &device);
  if (result != NVML_SUCCESS) return Fail(NvmlError(f, "card " + std::to_string(index), result));
  return device;
}

struct Memory {
  std::uint64_t total = 0, reserved = 0, used = 0, free = 0;
};

Result<Memory> ReadMemory(const NvmlFunctions& f, nvmlDevice_t device, const std::string& what) {
  if (f.memory_v2) {
    nvmlMemory_v2_t info{};
    info.version = nvmlMemory_v2;
    if (f.memory_v2(device, &info) == NVML_SUCCESS) {
      return Memory{info.total, info.reserved, info.used, info.free};
    }
  }
  if (!f.memory) return Fail(Code::kUnimplemented, what + ": driver gives no memory figures");
  nvmlMemory_t info{};
  const nvmlReturn_t result = f.memory(device, &info);
  if (result != NVML_SUCCESS) return Fail(NvmlError(f, what + ": memory", result));
  return Memory{info.total, 0, info.used, info.free};
}

void ReadMig(const NvmlFunctions& f, nvmlDevice_t device, Card& card) {
  unsigned current = 0, pending = 0, count = 0;
  if (!f.mig_mode || f.mig_mode(device, &current, &pending) != NVML_SUCCESS) return;
  card.mig_enabled = current == NVML_DEVICE_MIG_ENABLE;
  if (!card.mig_enabled || !f.mig_count || !f.mig_handle) return;
  if (f.mig_count(device, &count) != NVML_SUCCESS) return;
  for (unsigned i = 0; i < std::min(count, kMostCards); ++i) {
    nvmlDevice_t instance = nullptr;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
    if (f.mig_handle(device, i, &instance) != NVML_SUCCESS) continue;
    if (f.uuid(instance, uuid, sizeof uuid) != NVML_SUCCESS) continue;
    const Result<Memory> memory = ReadMemory(f, instance, "MIG instance");
    card.mig.push_back({Text(uuid, sizeof uuid), memory ? memory->total : 0});
  }
}

Result<Card> ReadCard(const NvmlFunctions& f, unsigned index) {
  const std::string what = "card " + std::to_string(index);
  const Result<nvmlDevice_t> device = Handle(f, index);
  if (!device) return Fail(device.error());
  Card card;
  card.index = static_cast<int>(index);
  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = {};
  nvmlPciInfo_t pci{};
  if (auto r = f.uuid(*device, uuid, sizeof uuid); r != NVML_SUCCESS) {
    return Fail(NvmlError(f, what + ": UUID", r));
  }
  if (auto r = f.name(*device, name, sizeof name); r != NVML_SUCCESS) {
    return Fail(NvmlError(f, what + ": name", r));
  }
  if (auto r = f.pci(*device, &pci); r != NVML_SUCCESS) {
    return Fail(NvmlError(f, what + ": PCI address", r));
  }
  card.uuid = Text(uuid, sizeof uuid);
  card.name = Text(name, sizeof name);
  card.pci = {pci.domain, pci.bus, pci.device};
  const Result<Memory> memory = ReadMemory(f, *device, what);
  if (!memory) return Fail(memory.error());
  card.memory_bytes = memory->total;
  card.reserved_bytes = memory->reserved;
  unsigned cores = 0;
  if (f.compute_capability) f.compute_capability(*device, &card.cc_major, &card.cc_minor);
  const unsigned per_sm = CoresPerSm(card.cc_major, card.cc_minor);
  if (f.core_count && per_sm && f.core_count(*device, &cores) == NVML_SUCCESS) {
    card.sm_count = static_cast<int>(cores / per_sm);
  }
  ReadMig(f, *device, card);
  return card;
}

using ProcessList = nvmlReturn_t (*)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);

// A process may stand in several lists with one and the same figure: the largest counts.
void AddProcesses(ProcessList list, nvmlDevice_t device,
                  std::map<std::uint32_t, ProcessMemory>& found) {
  if (!list) return;
  std::vector<nvmlProcessInfo_t> infos(64);
  unsigned count = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    count = static_cast<unsigned>(infos.size());
    const nvmlReturn_t result = list(device, &count, infos.data());
    if (result == NVML_SUCCESS) break;
    if (result != NVML_ERROR_INSUFFICIENT_SIZE || count > kMostProcesses) return;
    infos.resize(std::max<std::size_t>(count + 64, infos.size() * 2));  // more may start meanwhile
    count = 0;
  }
  count = std::min<unsigned>(count, static_cast<unsigned>(infos.size()));
  for (unsigned i = 0; i < count; ++i) {
    ProcessMemory& process = found[infos[i].pid];
    process.pid = infos[i].pid;
    if (infos[i].usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE)) {
      process.bytes = std::max<std::uint64_t>(process.bytes.value_or(0), infos[i].usedGpuMemory);
    }
  }
}

Result<CardUsage> ReadUsage(const NvmlFunctions& f, unsigned index) {
  const Result<nvmlDevice_t> device = Handle(f, index);
  if (!device) return Fail(device.error());
  const Result<Memory> memory = ReadMemory(f, *device, "card " + std::to_string(index));
  if (!memory) return Fail(memory.error());
  CardUsage usage;
  usage.total_bytes = memory->total;
  usage.reserved_bytes = memory->reserved;
  usage.used_bytes = memory->used;
  usage.free_bytes = memory->free;
  nvmlUtilization_t rates{};
  if (f.utilization && f.utilization(*device, &rates) == NVML_SUCCESS) {
    usage.gpu_percent = static_cast<int>(std::min(rates.gpu, 100u));
    usage.memory_percent = static_cast<int>(std::min(rates.memory, 100u));
  }
  std::map<std::uint32_t, ProcessMemory> found;
  AddProcesses(f.compute_processes, *device, found);
  AddProcesses(f.graphics_processes, *device, found);
  AddProcesses(f.mps_processes, *device, found);
  for (auto& [pid, process] : found) usage.processes.push_back(process);
  return usage;
}

class NvmlLibrary : public Nvml {
 public:
  NvmlLibrary(std::shared_ptr<const NvmlFunctions> functions, std::chrono::milliseconds timeout)
      : functions_(std::move(functions)), timeout_(timeout) {}

  // Initialises the driver and counts its cards.
  Status Start() {
    auto pending = node_.Post<unsigned>("driver", [f = functions_]() -> Result<unsigned> {
      if (auto r = f->init(); r != NVML_SUCCESS) return Fail(NvmlError(*f, "driver", r));
      unsigned count = 0;
      if (auto r = f->count(&count); r != NVML_SUCCESS) return Fail(NvmlError(*f, "driver", r));
      return count;
    });
    const Result<unsigned> count = pending.Wait(Deadline());
    if (!count) return Fail(count.error());
    for (unsigned i = 0; i < std::min(*count, kMostCards); ++i) {
      cards_.push_back(std::make_unique<BoundedCaller>());
    }
    return {};
  }

  Result<DriverInfo> Driver() override {
    auto pending = node_.Post<DriverInfo>("driver", [f = functions_]() -> Result<DriverInfo> {
      DriverInfo info;
      char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
      if (auto r = f->driver_version(version, sizeof version); r != NVML_SUCCESS) {
        return Fail(NvmlError(*f, "driver version", r));
      }
      info.version = Text(version, sizeof version);
      if (f->cuda_version) f->cuda_version(&info.cuda_version);
      info.library = f->library;
      info.memory_limits = f->set_memory_limits && f->get_memory_limits;
      return info;
    });
    return pending.Wait(Deadline());
  }

  Result<std::vector<Result<Card>>> Cards() override { return AskAll<Card>(&ReadCard); }
  Result<std::vector<Result<CardUsage>>> Usages() override { return AskAll<CardUsage>(&ReadUsage); }

  Status SetMemoryLimit(int card, const std::string& cgroup, std::uint64_t hard_bytes) override {
    if (!functions_->set_memory_limits) return NoLimits();
    return Ask<void>(card, [f = functions_, card, cgroup, hard_bytes]() -> Status {
      const Result<nvmlDevice_t> device = Handle(*f, static_cast<unsigned>(card));
      if (!device) return Fail(device.error());
      const NvmlSetMemoryLimits limits{cgroup.c_str(), 0, hard_bytes};
      const nvmlReturn_t r = f->set_memory_limits(*device, &limits);
      if (r != NVML_SUCCESS) return Fail(NvmlError(*f, "memory limit of " + cgroup, r));
      return {};
    });
  }

  Result<MemoryLimit> GetMemoryLimit(int card, const std::string& cgroup) override {
    if (!functions_->get_memory_limits) return NoLimits();
    return Ask<MemoryLimit>(card, [f = functions_, card, cgroup]() -> Result<MemoryLimit> {
      const Result<nvmlDevice_t> device = Handle(*f, static_cast<unsigned>(card));
      if (!device) return Fail(device.error());
      NvmlGetMemoryLimits limits{cgroup.c_str(), 0, 0, 0};
      const nvmlReturn_t r = f->get_memory_limits(*device, &limits);
      if (r != NVML_SUCCESS) return Fail(NvmlError(*f, "memory limit of " + cgroup, r));
      return MemoryLimit{limits.soft_limit, limits.hard_limit, limits.current_used};
    });
  }

 private:
  BoundedCaller::TimePoint Deadline() const { return std::chrono::steady_clock::now() + timeout_; }

  static tl::unexpected<Error> NoLimits() {
    return Fail(Code::kUnimplemented, "this driver has no memory limit per cgroup (R615 has)");
  }

  // All cards at once, so that several silent ones cost one time limit together.
  template <typename T>
  Result<std::vector<Result<T>>> AskAll(Result<T> (*read)(const NvmlFunctions&, unsigned)) {
    std::vector<BoundedCaller::Pending<T>> pending;
    for (unsigned i = 0; i < cards_.size(); ++i) {
      pending.push_back(cards_[i]->Post<T>("card " + std::to_string(i),
                                           [f = functions_, read, i] { return read(*f, i); }));
    }
    const BoundedCaller::TimePoint deadline = Deadline();
    std::vector<Result<T>> answers;
    for (auto& p : pending) answers.push_back(p.Wait(deadline));
    return answers;
  }

  template <typename T>
  Result<T> Ask(int card, std::function<Result<T>()> work) {
    if (card < 0 || static_cast<std::size_t>(card) >= cards_.size()) {
      return Fail(Code::kNotFound, "no card " + std::to_string(card));
    }
    auto& caller = *cards_[static_cast<std::size_t>(card)];
    return caller.Post<T>("card " + std::to_string(card), std::move(work)).Wait(Deadline());
  }

  std::shared_ptr<const NvmlFunctions> functions_;
  std::chrono::milliseconds timeout_;
  BoundedCaller node_;
  std::vector<std::unique_ptr<BoundedCaller>> cards_;
};

}  // namespace

Result<std::unique_ptr<Nvml>> OpenNvml(const OpenOptions& options) {
  Result<NvmlFunctions> functions = LoadNvmlFunctions(options.library);
  if (!functions) return Fail(functions.error());
  auto nvml = std::make_unique<NvmlLibrary>(
      std::make_shared<const NvmlFunctions>(std::move(*functions)), options.call_timeout);
  if (Status started = nvml->Start(); !started) return Fail(started.error());
  return nvml;
}

}  // namespace tessera::driver
