// Lists of processes: only the slice's own, with the bytes that its ledger holds for them.
//
// Compute lists come from the ledger, which knows a process before the driver's list does. Graphics
// and MPS lists, sessions and accounting come from the driver and are thinned out to the slice's
// processes.
#include "nvml/devices.h"
#include "nvml/own_processes.h"
#include "nvml/thin.h"
#include "real.h"

namespace tessera::fence::nvml {
namespace {

constexpr unsigned kNoInstance = 0xffffffff;

struct Instance {
  unsigned gpu = kNoInstance;
  unsigned compute = kNoInstance;
};

Instance InstanceOf(nvmlDevice_t device) {
  unsigned is_mig = 0;
  Instance instance;
  if (real::nvmlDeviceIsMigDeviceHandle(device, &is_mig) != NVML_SUCCESS || is_mig == 0)
    return instance;
  real::nvmlDeviceGetGpuInstanceId(device, &instance.gpu);
  real::nvmlDeviceGetComputeInstanceId(device, &instance.compute);
  return instance;
}

void Write(nvmlProcessInfo_v1_t& to, const OwnProcess& from, const Instance&) {
  to = {from.pid, from.bytes};
}
void Write(nvmlProcessInfo_v2_t& to, const OwnProcess& from, const Instance& instance) {
  to = {from.pid, from.bytes, instance.gpu, instance.compute};
}
void Write(nvmlProcessDetail_v1_t& to, const OwnProcess& from, const Instance& instance) {
  to = {from.pid, from.bytes, instance.gpu, instance.compute, 0};
}

bool Listed(nvmlReturn_t result) {
  return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE;
}

// NVML's protocol: too little room gives INSUFFICIENT_SIZE and the number that is needed.
template <typename Info>
nvmlReturn_t Deliver(const OwnProcesses& processes, const Instance& instance, unsigned* count,
                     Info* infos) {
  unsigned wanted = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) wanted += processes[i].bytes > 0;
  if (wanted > *count || (wanted > 0 && infos == nullptr)) {
    *count = wanted;
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  unsigned at = 0;
  for (std::size_t i = 0; i < processes.size() && at < wanted; ++i) {
    if (processes[i].bytes > 0) Write(infos[at++], processes[i], instance);
  }
  *count = at;
  return NVML_SUCCESS;
}

template <typename Info, typename Real>
nvmlReturn_t FromLedger(nvmlDevice_t device, unsigned* count, Info* infos, Real real_function) {
  const int card = count != nullptr && Fenced() ? CardOf(device) : -1;
  if (card < 0) return real_function(device, count, infos);
  unsigned none = 0;
  if (const nvmlReturn_t result = real_function(device, &none, nullptr); !Listed(result))
    return result;
  return Deliver(OwnProcesses(card), InstanceOf(device), count, infos);
}

template <typename Info, typename Real>
nvmlReturn_t FromDriver(nvmlDevice_t device, unsigned* count, Info* infos, Real real_function) {
  const int card = count != nullptr && Fenced() ? CardOf(device) : -1;
  if (card < 0) return real_function(device, count, infos);
  const OwnProcesses processes(card);
  return Thin(
      count, infos, [&](unsigned* n, Info* to) { return real_function(device, n, to); },
      [&](Info& info) {
        const OwnProcess* process = processes.Find(info.pid);
        if (process == nullptr) return false;
        info.pid = process->pid;
        info.usedGpuMemory = process->bytes;
        return true;
      });
}

}  // namespace
}  // namespace tessera::fence::nvml

extern "C" {

namespace real = tessera::fence::real;
namespace own = tessera::fence::nvml;

#define FROM_LEDGER(name, Info)                                          \
  nvmlReturn_t name(nvmlDevice_t device, unsigned* count, Info* infos) { \
    return own::FromLedger(device, count, infos, real::name);            \
  }
#define FROM_DRIVER(name, Info)                                          \
  nvmlReturn_t name(nvmlDevice_t device, unsigned* count, Info* infos) { \
    return own::FromDriver(device, count, infos, real::name);            \
  }

FROM_LEDGER(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
FROM_LEDGER(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
FROM_LEDGER(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
FROM_DRIVER(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
FROM_DRIVER(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
FROM_DRIVER(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
FROM_DRIVER(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
FROM_DRIVER(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
FROM_DRIVER(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

#undef FROM_LEDGER
#undef FROM_DRIVER

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t* list) {
  constexpr unsigned kCompute = 0;  // `mode`: compute, graphics, MPS
  const int card = list != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetRunningProcessDetailList(device, list);
  auto ask = [&](unsigned* count, nvmlProcessDetail_v1_t* to) {
    nvmlProcessDetailList_t request = *list;
    request.numProcArrayEntries = *count;
    request.procArray = to;
    const nvmlReturn_t result = real::nvmlDeviceGetRunningProcessDetailList(device, &request);
    *count = request.numProcArrayEntries;
    return result;
  };
  if (list->mode == kCompute) {
    unsigned none = 0;
    if (const nvmlReturn_t result = ask(&none, nullptr); !own::Listed(result)) return result;
    return own::Deliver(own::OwnProcesses(card), own::InstanceOf(device),
                        &list->numProcArrayEntries, list->procArray);
  }
  const own::OwnProcesses processes(card);
  return own::Thin(&list->numProcArrayEntries, list->procArray, ask,
                   [&](nvmlProcessDetail_v1_t& detail) {
                     const own::OwnProcess* process = processes.Find(detail.pid);
                     if (process == nullptr) return false;
                     detail.pid = process->pid;
                     detail.usedGpuMemory = process->bytes;
                     return true;
                   });
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned* count, unsigned* pids) {
  const int card = count != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetAccountingPids(device, count, pids);
  const own::OwnProcesses processes(card);
  return own::Thin(
      count, pids,
      [&](unsigned* n, unsigned* to) { return real::nvmlDeviceGetAccountingPids(device, n, to); },
      [&](unsigned& pid) {
        const own::OwnProcess* process = processes.Find(pid);
        if (process != nullptr) pid = process->pid;
        return process != nullptr;
      });
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                          nvmlAccountingStats_t* stats) {
  const int card = own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetAccountingStats(device, pid, stats);
  const own::OwnProcesses processes(card);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i].pid != pid) continue;
    const unsigned known = processes[i].host_pid != 0 ? processes[i].host_pid : pid;
    return real::nvmlDeviceGetAccountingStats(device, known, stats);
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned* count,
                                          nvmlEncoderSessionInfo_t* sessions) {
  const int card = count != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetEncoderSessions(device, count, sessions);
  const own::OwnProcesses processes(card);
  return own::Thin(
      count, sessions,
      [&](unsigned* n, nvmlEncoderSessionInfo_t* to) {
        return real::nvmlDeviceGetEncoderSessions(device, n, to);
      },
      [&](nvmlEncoderSessionInfo_t& session) { return processes.Find(session.pid) != nullptr; });
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned* count,
                                      nvmlFBCSessionInfo_t* sessions) {
  const int card = count != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetFBCSessions(device, count, sessions);
  const own::OwnProcesses processes(card);
  return own::Thin(
      count, sessions,
      [&](unsigned* n, nvmlFBCSessionInfo_t* to) {
        return real::nvmlDeviceGetFBCSessions(device, n, to);
      },
      [&](nvmlFBCSessionInfo_t& session) { return processes.Find(session.pid) != nullptr; });
}

}  // extern "C"
