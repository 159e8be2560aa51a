// Who uses a card. The three versions of the record differ in their end only.
#include <stdlib.h>

#include <algorithm>
#include <memory>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

nvmlProcessInfo_v1_t Record(const User& user, nvmlProcessInfo_v1_t*) {
  return {user.pid, user.bytes};
}
nvmlProcessInfo_v2_t Record(const User& user, nvmlProcessInfo_v2_t*) {
  return {user.pid, user.bytes, user.gpu_instance, user.compute_instance};
}
nvmlProcessDetail_v1_t Record(const User& user, nvmlProcessDetail_v1_t*) {
  return {user.pid, user.bytes, user.gpu_instance, user.compute_instance, 0};
}

// malloc, not new: that would bring the C++ library's exceptions and their 72 KiB pool into every
// program.
struct Free {
  void operator()(User* users) const { free(users); }
};
using Users = std::unique_ptr<User[], Free>;

// All users; nullptr when there are none or no memory is left.
Users AllUsers(const Device& device, int* count) {
  *count = ListUsers(device, nullptr, 0);
  if (*count == 0) return nullptr;
  Users users(static_cast<User*>(calloc(static_cast<std::size_t>(*count), sizeof(User))));
  if (users != nullptr) *count = std::min(*count, ListUsers(device, users.get(), *count));
  return users;
}

// A list of records in the caller's array: too small an array gets the number that it should have.
template <typename Info>
nvmlReturn_t Fill(const Device& device, unsigned int* room, Info* infos) {
  if (room == nullptr || (infos == nullptr && *room > 0)) return NVML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  const Users users = AllUsers(device, &count);
  if (count > 0 && users == nullptr) return NVML_ERROR_MEMORY;
  const bool fits = static_cast<unsigned int>(count) <= *room;
  *room = static_cast<unsigned int>(count);
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (int i = 0; i < count; ++i) infos[i] = Record(users[i], infos);
  return NVML_SUCCESS;
}

// No simulated program draws, and none runs under MPS.
nvmlReturn_t Nobody(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace

int ListUsers(const Device& device, User* users, int room) {
  SweepDeadProcesses();
  const NodeState& node = Node();
  const std::uint64_t high = std::min<std::uint64_t>(node.slots_high.load(), kMaxProcesses);
  int count = 0;
  for (std::uint64_t i = 0; i < high; ++i) {
    const ProcessSlot& slot = node.processes[i];
    const std::uint64_t owner = slot.owner.load();
    const CardProcess& on_card = slot.cards[device.card];
    if (owner == 0 || (on_card.contexts.load() == 0 && HeldBytes(on_card) == 0)) continue;
    const std::uint64_t mig = on_card.mig.load();
    if (device.mig >= 0 && mig != static_cast<std::uint64_t>(device.mig) + 1) continue;
    const pid_t pid = VisiblePid(slot);
    if (pid == 0) continue;  // of a pid namespace that the caller can't see into
    if (count < room) {
      users[count] = {static_cast<unsigned int>(pid),
                      HeldBytes(on_card),
                      on_card.busy_ns.load(),
                      slot.started_ns.load(),
                      owner,
                      kNoInstance,
                      kNoInstance};
      if (mig != 0 && mig <= kMaxMigDevices) {
        const MigSpec& spec = node.specs[device.card].mig[mig - 1];
        users[count].gpu_instance = spec.gpu_instance;
        users[count].compute_instance = spec.compute_instance;
      }
    }
    ++count;
  }
  return count;
}

nvmlReturn_t DeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                              nvmlProcessInfo_v1_t* infos) {
  return Fill(*DeviceOf(device), count, infos);
}
nvmlReturn_t DeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                 nvmlProcessInfo_v2_t* infos) {
  return Fill(*DeviceOf(device), count, infos);
}
nvmlReturn_t DeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                 nvmlProcessInfo_t* infos) {
  return Fill(*DeviceOf(device), count, infos);
}

nvmlReturn_t DeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned int* count,
                                               nvmlProcessInfo_v1_t*) {
  return Nobody(count);
}
nvmlReturn_t DeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned int* count,
                                                  nvmlProcessInfo_v2_t*) {
  return Nobody(count);
}
nvmlReturn_t DeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned int* count,
                                                  nvmlProcessInfo_t*) {
  return Nobody(count);
}

nvmlReturn_t DeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned int* count,
                                                 nvmlProcessInfo_v1_t*) {
  return Nobody(count);
}
nvmlReturn_t DeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned int* count,
                                                    nvmlProcessInfo_v2_t*) {
  return Nobody(count);
}
nvmlReturn_t DeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned int* count,
                                                    nvmlProcessInfo_t*) {
  return Nobody(count);
}

nvmlReturn_t DeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* list) {
  if (list == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  // Modes: 0 compute, 1 graphics, 2 MPS.
  if (list->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->mode != 0) return Nobody(&list->numProcArrayEntries);
  return Fill(*DeviceOf(device), &list->numProcArrayEntries, list->procArray);
}

nvmlReturn_t DeviceGetAccountingMode(nvmlDevice_t, nvmlEnableState_t* mode) {
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetAccountingBufferSize(nvmlDevice_t, unsigned int* size) {
  if (size == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *size = kMaxProcesses;
  return NVML_SUCCESS;
}

// Of the processes that run; those that ended are not kept.
nvmlReturn_t DeviceGetAccountingPids(nvmlDevice_t device, unsigned int* count, unsigned int* pids) {
  if (count == nullptr || (pids == nullptr && *count > 0)) return NVML_ERROR_INVALID_ARGUMENT;
  int found = 0;
  const Users users = AllUsers(*DeviceOf(device), &found);
  if (found > 0 && users == nullptr) return NVML_ERROR_MEMORY;
  const bool fits = static_cast<unsigned int>(found) <= *count;
  *count = static_cast<unsigned int>(found);
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (int i = 0; i < found; ++i) pids[i] = users[i].pid;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                      nvmlAccountingStats_t* stats) {
  if (stats == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  const Users users = AllUsers(*DeviceOf(device), &count);
  if (count > 0 && users == nullptr) return NVML_ERROR_MEMORY;
  for (int i = 0; i < count; ++i) {
    if (users[i].pid != pid) continue;
    *stats = {};
    const std::uint64_t lived = std::max<std::uint64_t>(NowNs() - users[i].started_ns, 1);
    stats->gpuUtilization =
        static_cast<unsigned int>(std::min<std::uint64_t>(100, 100 * users[i].busy_ns / lived));
    stats->memoryUtilization = stats->gpuUtilization / 2;
    stats->maxMemoryUsage = users[i].bytes;
    stats->startTime = RealTimeUs(users[i].started_ns);
    stats->isRunning = 1;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace tessera::sim::nvml
