// Who uses a card. The three versions of the record differ in their end only.
#include <stdlib.h>

#include <algorithm>
#include <memory>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

constexpr unsigned int kNoInstance = 0xffffffff;

nvmlProcessInfo_v1_t Record(const User& user, nvmlProcessInfo_v1_t*) {
  return {user.pid, user.bytes};
}
nvmlProcessInfo_v2_t Record(const User& user, nvmlProcessInfo_v2_t*) {
  return {user.pid, user.bytes, kNoInstance, kNoInstance};
}
nvmlProcessDetail_v1_t Record(const User& user, nvmlProcessDetail_v1_t*) {
  return {user.pid, user.bytes, kNoInstance, kNoInstance, 0};
}

// malloc, not new: that would bring the C++ library's exceptions and their 72 KiB pool into every
// program.
struct Free {
  void operator()(User* users) const { free(users); }
};
using Users = std::unique_ptr<User[], Free>;

// All users of a card; nullptr when there are none or no memory is left.
Users AllUsers(int card, int* count) {
  *count = ListUsers(card, nullptr, 0);
  if (*count == 0) return nullptr;
  Users users(static_cast<User*>(calloc(static_cast<std::size_t>(*count), sizeof(User))));
  if (users != nullptr) *count = std::min(*count, ListUsers(card, users.get(), *count));
  return users;
}

// A list of records in the caller's array: too small an array gets the number that it should have.
template <typename Info>
nvmlReturn_t Fill(int card, unsigned int* room, Info* infos) {
  if (room == nullptr || (infos == nullptr && *room > 0)) return NVML_ERROR_INVALID_ARGUMENT;
  int count = 0;
  const Users users = AllUsers(card, &count);
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

int ListUsers(int card, User* users, int room) {
  SweepDeadProcesses();
  const NodeState& node = Node();
  const std::uint64_t high = std::min<std::uint64_t>(node.slots_high.load(), kMaxProcesses);
  int count = 0;
  for (std::uint64_t i = 0; i < high; ++i) {
    const ProcessSlot& slot = node.processes[i];
    const std::uint64_t owner = slot.owner.load();
    const CardProcess& on_card = slot.cards[card];
    if (owner == 0 || (on_card.contexts.load() == 0 && HeldBytes(on_card) == 0)) continue;
    const pid_t pid = VisiblePid(slot);
    if (pid == 0) continue;  // of a pid namespace that the caller can't see into
    if (count < room) {
      users[count] = {static_cast<unsigned int>(pid), HeldBytes(on_card), on_card.busy_ns.load(),
                      slot.started_ns.load(), owner};
    }
    ++count;
  }
  return count;
}

nvmlReturn_t DeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                              nvmlProcessInfo_v1_t* infos) {
  return Fill(DeviceOf(device)->card, count, infos);
}
nvmlReturn_t DeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                 nvmlProcessInfo_v2_t* infos) {
  return Fill(DeviceOf(device)->card, count, infos);
}
nvmlReturn_t DeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                 nvmlProcessInfo_t* infos) {
  return Fill(DeviceOf(device)->card, count, infos);
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
  return Fill(DeviceOf(device)->card, &list->numProcArrayEntries, list->procArray);
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
  const Users users = AllUsers(DeviceOf(device)->card, &found);
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
  const Users users = AllUsers(DeviceOf(device)->card, &count);
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
