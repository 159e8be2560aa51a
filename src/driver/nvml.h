// What the driver says about the cards of this machine.
//
//   Result<std::unique_ptr<Nvml>> nvml = OpenNvml({});
//   for (const Result<Card>& card : (*nvml)->Cards()) ...
//
// Units: bytes, percent. Process ids are the driver's: of the host's pid namespace.
// Thread safety: an Nvml may be used from one thread at a time.
// Invariants:
//   1. Every call returns within the time limit of OpenOptions, whatever the driver does. A card
//   that does not
//      answer gets kDeadlineExceeded, at once as long as its last call still hangs; the other cards
//      are not held up.
//   2. Nothing here changes a card, except SetMemoryLimit.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::driver {

struct DriverInfo {
  std::string version;         // "580.95.05"
  int cuda_version = 0;        // 13000
  std::string library;         // path that the loader found
  bool memory_limits = false;  // has the memory limit per cgroup (R615 and later)
};

struct PciAddress {
  std::uint32_t domain = 0, bus = 0, device = 0;
};

struct MigInstance {
  std::string uuid;  // "MIG-..."
  std::uint64_t memory_bytes = 0;
};

struct Card {
  int index = 0;  // NVML's: PCI order
  std::string uuid;
  std::string name;
  PciAddress pci;
  std::uint64_t memory_bytes = 0;  // NVML's total
  std::uint64_t reserved_bytes =
      0;  // of it, kept by the driver and firmware; 0 where the driver does not say
  int cc_major = 0, cc_minor = 0;
  int sm_count = 0;  // 0 = the driver does not say
  bool mig_enabled = false;
  std::vector<MigInstance> mig;
};

struct ProcessMemory {
  std::uint32_t pid = 0;
  std::optional<std::uint64_t> bytes;  // none where the driver keeps no figure per process (WSL)
};

struct CardUsage {
  std::uint64_t total_bytes = 0, reserved_bytes = 0, used_bytes = 0, free_bytes = 0;
  std::optional<int> gpu_percent;        // share of the driver's last window in which a kernel ran
  std::optional<int> memory_percent;     // share in which memory was read or written
  std::vector<ProcessMemory> processes;  // by pid; one entry a process
};

struct MemoryLimit {
  std::uint64_t soft_bytes = 0, hard_bytes = 0, used_bytes = 0;
};

inline constexpr std::uint64_t kNoMemoryLimit = ~std::uint64_t{0};  // NVML_DEVICE_MEMORY_LIMIT_MAX

class Nvml {
 public:
  virtual ~Nvml() = default;

  virtual Result<DriverInfo> Driver() = 0;

  // One answer a card, in NVML's order; an error stands for a card that is lost or silent. The
  // outer error: the driver as a whole.
  virtual Result<std::vector<Result<Card>>> Cards() = 0;
  virtual Result<std::vector<Result<CardUsage>>> Usages() = 0;

  // The driver's own limit for the processes of one cgroup, named by its full path. kUnimplemented
  // where the driver has none; kPermissionDenied for users other than root. Removing the cgroup
  // removes the limit.
  virtual Status SetMemoryLimit(int card, const std::string& cgroup, std::uint64_t hard_bytes) = 0;
  virtual Result<MemoryLimit> GetMemoryLimit(int card, const std::string& cgroup) = 0;
};

struct OpenOptions {
  std::string library;  // empty = where the loader finds libnvidia-ml.so.1
  std::chrono::milliseconds call_timeout{2000};
};

// kUnavailable when there is no driver; the message says what was missing.
Result<std::unique_ptr<Nvml>> OpenNvml(const OpenOptions& options);

}  // namespace tessera::driver
