// How busy a card is, the way NVML sees it: windows of 1/6 s, each with one busy share and the one
// process that had the engine at its end.
#include <algorithm>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

unsigned int Percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0
                    : static_cast<unsigned int>(
                          std::min<std::uint64_t>(100, (100 * part + whole / 2) / whole));
}

// Share of a second that memory was read or written: kernels move data about half of their time,
// copies all of it.
unsigned int MemoryPercent(std::uint64_t compute, std::uint64_t copies, std::uint64_t whole) {
  return Percent(std::min(whole, compute / 2 + copies), whole);
}

std::uint64_t WindowEndUs(std::uint64_t window) { return RealTimeUs((window + 1) * kUtilWindowNs); }

// In MIG mode neither the card nor its instances have these figures.
bool Measured(nvmlDevice_t device) {
  return Mig(device) == nullptr && Spec(device).mig_enabled == 0;
}

// What one process got: the sum of the shares of the windows that ended with it.
struct Attributed {
  std::uint64_t owner;
  std::uint64_t compute_ns;
  std::uint64_t last_window;
};

// Adds up the windows since `last_seen_us`; answers how many processes there are.
int Attribute(int card, std::uint64_t last_seen_us, std::array<Attributed, kUtilSamples>& out,
              int* window_count) {
  const Windows windows = CollectWindows(card, 0);
  int count = 0;
  *window_count = 0;
  for (const TimelineLog::Window& window : windows.list) {
    if (WindowEndUs(window.window) <= last_seen_us) continue;
    ++*window_count;
    if (window.owner == 0 || window.busy_ns == 0) continue;
    int at = 0;
    while (at < count && out[at].owner != window.owner) ++at;
    if (at == count) out[count++] = {window.owner, 0, 0};
    out[at].compute_ns += window.busy_ns;
    out[at].last_window = window.window;
  }
  return count;
}

unsigned int PidOfOwner(std::uint64_t owner) {
  const NodeState& node = Node();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(node.slots_high.load(), kMaxProcesses);
       ++i) {
    if (node.processes[i].owner.load() == owner)
      return static_cast<unsigned int>(VisiblePid(node.processes[i]));
  }
  return 0;
}

struct ProcessShare {
  unsigned int pid, compute, memory;
  unsigned long long when_us;
};

int Shares(int card, std::uint64_t last_seen_us, std::array<ProcessShare, kUtilSamples>& out) {
  std::array<Attributed, kUtilSamples> attributed;
  int windows = 0;
  const int found = Attribute(card, last_seen_us, attributed, &windows);
  int count = 0;
  for (int i = 0; i < found; ++i) {
    const unsigned int pid = PidOfOwner(attributed[i].owner);
    if (pid == 0) continue;
    const unsigned int compute =
        Percent(attributed[i].compute_ns, static_cast<std::uint64_t>(windows) * kUtilWindowNs);
    out[count++] = {pid, compute, compute / 2, WindowEndUs(attributed[i].last_window)};
  }
  return count;
}

nvmlReturn_t Idle(unsigned int* utilization, unsigned int* period_us) {
  if (utilization == nullptr || period_us == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *utilization = 0;
  *period_us = kUtilWindowNs / 1000;
  return NVML_SUCCESS;
}

}  // namespace

Windows CollectWindows(int card, int engine) {
  const NodeState& node = Node();
  TimelineLog log;
  const Timeline timeline = PeekTimeline(node, card, engine, &log);
  const std::uint64_t now = NowNs();
  const std::uint64_t current = now / kUtilWindowNs;
  Windows windows{};
  windows.partial_ns = now - current * kUtilWindowNs;
  windows.partial_busy_ns =
      timeline.advanced_ns / kUtilWindowNs == current ? timeline.window_busy_ns : 0;
  for (int i = 0; i < kUtilSamples; ++i) {
    TimelineLog::Window& window = windows.list[i];
    window = {current - kUtilSamples + static_cast<std::uint64_t>(i), 0, 0};
    const UtilSample& sample = node.cards[card].samples[engine][window.window % kUtilSamples];
    if (sample.window.load() == window.window)
      window = {window.window, sample.busy_ns.load(), sample.owner.load()};
  }
  const std::uint64_t first = windows.list[0].window;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(log.window_count, kUtilSamples); ++i) {
    const TimelineLog::Window& window = log.windows[i];
    if (window.window >= first && window.window < current)
      windows.list[window.window - first] = window;
  }
  return windows;
}

Load CurrentLoad(int card) {
  std::uint64_t busy[kMaxEngines] = {};
  std::uint64_t time = 1;
  for (int engine = 0; engine < kMaxEngines; ++engine) {
    const Windows windows = CollectWindows(card, engine);
    busy[engine] = windows.list.back().busy_ns + windows.partial_busy_ns;
    time = kUtilWindowNs + windows.partial_ns;
  }
  return {Percent(busy[0], time), MemoryPercent(busy[0], busy[1] + busy[2], time)};
}

nvmlReturn_t DeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  if (utilization == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (!Measured(device)) return NVML_ERROR_NOT_SUPPORTED;
  const Load load = CurrentLoad(DeviceOf(device)->card);
  *utilization = {load.compute, load.memory};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetEncoderUtilization(nvmlDevice_t, unsigned int* utilization,
                                         unsigned int* period_us) {
  return Idle(utilization, period_us);
}
nvmlReturn_t DeviceGetDecoderUtilization(nvmlDevice_t, unsigned int* utilization,
                                         unsigned int* period_us) {
  return Idle(utilization, period_us);
}
nvmlReturn_t DeviceGetJpgUtilization(nvmlDevice_t, unsigned int* utilization,
                                     unsigned int* period_us) {
  return Idle(utilization, period_us);
}
nvmlReturn_t DeviceGetOfaUtilization(nvmlDevice_t, unsigned int* utilization,
                                     unsigned int* period_us) {
  return Idle(utilization, period_us);
}

nvmlReturn_t DeviceGetEncoderCapacity(nvmlDevice_t, nvmlEncoderType_t, unsigned int* capacity) {
  if (capacity == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *capacity = 100;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetEncoderStats(nvmlDevice_t, unsigned int* sessions, unsigned int* fps,
                                   unsigned int* latency) {
  if (sessions == nullptr || fps == nullptr || latency == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *sessions = *fps = *latency = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetEncoderSessions(nvmlDevice_t, unsigned int* count,
                                      nvmlEncoderSessionInfo_t*) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetProcessUtilization(nvmlDevice_t device,
                                         nvmlProcessUtilizationSample_t* samples,
                                         unsigned int* count, unsigned long long last_seen_us) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (!Measured(device)) return NVML_ERROR_NOT_SUPPORTED;
  std::array<ProcessShare, kUtilSamples> shares;
  const auto found =
      static_cast<unsigned int>(Shares(DeviceOf(device)->card, last_seen_us, shares));
  const unsigned int room = *count;
  if (samples == nullptr || room < found) {
    *count = std::max(found, samples == nullptr ? 1U : found);
    return samples == nullptr && found == 0 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INSUFFICIENT_SIZE;
  }
  *count = found;
  if (found == 0) return NVML_ERROR_NOT_FOUND;
  for (unsigned int i = 0; i < found; ++i) {
    samples[i] = {shares[i].pid, shares[i].when_us, shares[i].compute, shares[i].memory, 0, 0};
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                               nvmlProcessesUtilizationInfo_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (!Measured(device)) return NVML_ERROR_NOT_SUPPORTED;
  std::array<ProcessShare, kUtilSamples> shares;
  const auto found =
      static_cast<unsigned int>(Shares(DeviceOf(device)->card, info->lastSeenTimeStamp, shares));
  const bool fits = info->procUtilArray != nullptr && found <= info->processSamplesCount;
  info->processSamplesCount = found;
  if (found == 0) return NVML_ERROR_NOT_FOUND;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < found; ++i) {
    info->procUtilArray[i] = {
        shares[i].when_us, shares[i].pid, shares[i].compute, shares[i].memory, 0, 0, 0, 0};
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                              unsigned long long last_seen_us, nvmlValueType_t* value_type,
                              unsigned int* count, nvmlSample_t* samples) {
  if (value_type == nullptr || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (samples != nullptr && *count == 0) return NVML_ERROR_INVALID_ARGUMENT;
  if (!Measured(device)) return NVML_ERROR_NOT_SUPPORTED;
  *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
  if (samples == nullptr) {
    *count = kUtilSamples;
    return NVML_SUCCESS;
  }
  const int card = DeviceOf(device)->card;
  const CardSpec& spec = Spec(device);
  const Windows compute = CollectWindows(card, 0), in = CollectWindows(card, 1),
                out = CollectWindows(card, 2);
  unsigned int given = 0;
  for (int i = 0; i < kUtilSamples && given < *count; ++i) {
    const std::uint64_t when = WindowEndUs(compute.list[i].window);
    if (when <= last_seen_us) continue;
    const std::uint64_t busy = compute.list[i].busy_ns;
    unsigned int value = 0;
    switch (type) {
      case NVML_GPU_UTILIZATION_SAMPLES:
        value = Percent(busy, kUtilWindowNs);
        break;
      case NVML_MEMORY_UTILIZATION_SAMPLES:
        value = MemoryPercent(busy, in.list[i].busy_ns + out.list[i].busy_ns, kUtilWindowNs);
        break;
      case NVML_TOTAL_POWER_SAMPLES:
        value = spec.idle_power_mw + (spec.power_limit_mw * 9 / 10 - spec.idle_power_mw) / 100 *
                                         Percent(busy, kUtilWindowNs);
        break;
      case NVML_PROCESSOR_CLK_SAMPLES:
        value = busy > 0 ? spec.sm_clock_mhz : 210;
        break;
      case NVML_MEMORY_CLK_SAMPLES:
        value = spec.memory_clock_mhz;
        break;
      case NVML_ENC_UTILIZATION_SAMPLES:
      case NVML_DEC_UTILIZATION_SAMPLES:
      case NVML_JPG_UTILIZATION_SAMPLES:
      case NVML_OFA_UTILIZATION_SAMPLES:
        break;
      default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
    samples[given].timeStamp = when;
    samples[given].sampleValue.uiVal = value;
    ++given;
  }
  *count = given;
  return given == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
