// Memory of a card: what is there, what is taken.
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

struct Figures {
  std::uint64_t total, reserved, used, free;
};

Figures Measure(nvmlDevice_t device) {
  const CardSpec& spec = Spec(device);
  if (const MigSpec* mig = Mig(device)) {
    const std::uint64_t used = UsedOnMigDevice(DeviceOf(device)->card, DeviceOf(device)->mig);
    return {mig->memory_bytes, 0, used, mig->memory_bytes - std::min(mig->memory_bytes, used)};
  }
  const std::uint64_t used = UsedBytes(DeviceOf(device)->card);
  const std::uint64_t taken = std::min(spec.memory_bytes, spec.reserved_bytes + used);
  return {spec.memory_bytes, spec.reserved_bytes, used, spec.memory_bytes - taken};
}

}  // namespace

// The first version counts what is reserved as used, the second shows it apart: nvml.h at
// nvmlMemory_v2_t.
nvmlReturn_t DeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const Figures figures = Measure(device);
  *memory = {figures.total, figures.free, figures.total - figures.free};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const Figures figures = Measure(device);
  memory->total = figures.total;
  memory->reserved = figures.reserved;
  memory->free = figures.free;
  memory->used = figures.used;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* memory) {
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  // Each context maps a few pages of it; 2 MiB are in use on an idle card.
  User users[1];
  const auto count = static_cast<unsigned long long>(ListUsers(*DeviceOf(device), users, 0));
  memory->bar1Total = Spec(device).bar1_bytes;
  memory->bar1Used = std::min<unsigned long long>(memory->bar1Total, (1 + count) * kBlockBytes);
  memory->bar1Free = memory->bar1Total - memory->bar1Used;
  return NVML_SUCCESS;
}

namespace {

// The call names a cgroup by its directory; a process by the path below the mount (on hybrid hosts
// "unified").
std::string_view BelowMount(std::string_view directory) {
  for (std::string_view mount : {"/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"}) {
    if (!directory.starts_with(mount)) continue;
    directory.remove_prefix(mount.size() - 1);
    return directory;
  }
  return directory == "/sys/fs/cgroup" || directory == "/sys/fs/cgroup/unified" ? "/" : directory;
}

}  // namespace

nvmlReturn_t DeviceSetMemoryLimits_v1(nvmlDevice_t device, SetMemoryLimits_v1* limits) {
  if (Node().memory_limits_supported == 0 || Mig(device) != nullptr)
    return NVML_ERROR_NOT_SUPPORTED;
  if (limits == nullptr || limits->name_space == nullptr || limits->name_space[0] != '/')
    return NVML_ERROR_INVALID_ARGUMENT;
  if (limits->soft_limit > limits->hard_limit) return NVML_ERROR_INVALID_ARGUMENT;
  if (geteuid() != 0) return NVML_ERROR_NO_PERMISSION;
  return SetMemoryLimit(DeviceOf(device)->card, BelowMount(limits->name_space), limits->soft_limit,
                        limits->hard_limit)
             ? NVML_SUCCESS
             : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t DeviceGetMemoryLimits_v1(nvmlDevice_t device, GetMemoryLimits_v1* limits) {
  if (Node().memory_limits_supported == 0 || Mig(device) != nullptr)
    return NVML_ERROR_NOT_SUPPORTED;
  if (limits == nullptr || limits->name_space == nullptr || limits->name_space[0] != '/')
    return NVML_ERROR_INVALID_ARGUMENT;
  const MemoryLimitView view =
      GetMemoryLimit(DeviceOf(device)->card, BelowMount(limits->name_space));
  limits->soft_limit = view.soft;
  limits->hard_limit = view.hard;
  limits->current_used = view.used;
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
