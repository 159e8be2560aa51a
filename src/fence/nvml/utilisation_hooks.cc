// Utilisation of the slice: the card's figure, scaled by the part that the slice's own processes
// have in it.
//
// The driver samples each process; the ratio of the own samples to all of them in the last second
// is that part. Where it has no samples by process (MIG, old cards, no rights), the part is the
// number of own processes among all.
#include "nvml/devices.h"
#include "nvml/own_processes.h"
#include "nvml/thin.h"
#include "os/os.h"
#include "real.h"

namespace tessera::fence::nvml {
namespace {

constexpr unsigned kMostSamples = 4096;
constexpr unsigned long long kWindowUs = 1'000'000;

struct Share {
  std::uint64_t own = 0;
  std::uint64_t all = 0;
  unsigned Of(unsigned value) const {
    return all == 0 ? 0 : static_cast<unsigned>(static_cast<std::uint64_t>(value) * own / all);
  }
};

Share ByNumber(nvmlDevice_t device, const OwnProcesses& processes) {
  Scratch<nvmlProcessInfo_t> list(kMostSamples);
  unsigned count = static_cast<unsigned>(list.size());
  Share share;
  if (real::nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list.data()) != NVML_SUCCESS)
    return share;
  for (unsigned i = 0; i < count && i < list.size(); ++i) {
    share.all += 1;
    share.own += processes.Find(list[i].pid) != nullptr;
  }
  return share;
}

// `metric(sample)` picks the figure that is shared out.
template <typename Metric>
Share ShareOf(nvmlDevice_t device, int card, Metric metric) {
  const OwnProcesses processes(card);
  Scratch<nvmlProcessUtilizationSample_t> samples(kMostSamples);
  unsigned count = static_cast<unsigned>(samples.size());
  const unsigned long long now_us = os::RealtimeNs() / 1000;
  const nvmlReturn_t result = real::nvmlDeviceGetProcessUtilization(
      device, samples.data(), &count, now_us > kWindowUs ? now_us - kWindowUs : 0);
  if (result == NVML_ERROR_NOT_FOUND) return {};
  Share share;
  if (result == NVML_SUCCESS) {
    for (unsigned i = 0; i < count && i < samples.size(); ++i) {
      const unsigned value = metric(samples[i]);
      share.all += value;
      if (processes.Find(samples[i].pid) != nullptr) share.own += value;
    }
  }
  return share.all != 0 ? share : ByNumber(device, processes);
}

unsigned Sm(const nvmlProcessUtilizationSample_t& sample) { return sample.smUtil; }
unsigned Memory(const nvmlProcessUtilizationSample_t& sample) { return sample.memUtil; }
unsigned Encoder(const nvmlProcessUtilizationSample_t& sample) { return sample.encUtil; }
unsigned Decoder(const nvmlProcessUtilizationSample_t& sample) { return sample.decUtil; }

template <typename Metric>
nvmlReturn_t Scale(nvmlDevice_t device, unsigned* value, nvmlReturn_t result, Metric metric) {
  if (result != NVML_SUCCESS || value == nullptr || !Fenced() || *value == 0) return result;
  if (const int card = CardOf(device); card >= 0) *value = ShareOf(device, card, metric).Of(*value);
  return result;
}

}  // namespace
}  // namespace tessera::fence::nvml

extern "C" {

namespace real = tessera::fence::real;
namespace own = tessera::fence::nvml;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  const nvmlReturn_t result = real::nvmlDeviceGetUtilizationRates(device, utilization);
  if (utilization == nullptr) return result;
  own::Scale(device, &utilization->gpu, result, own::Sm);
  return own::Scale(device, &utilization->memory, result, own::Memory);
}
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned* utilization,
                                             unsigned* period_us) {
  return own::Scale(device, utilization,
                    real::nvmlDeviceGetEncoderUtilization(device, utilization, period_us),
                    own::Encoder);
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned* utilization,
                                             unsigned* period_us) {
  return own::Scale(device, utilization,
                    real::nvmlDeviceGetDecoderUtilization(device, utilization, period_us),
                    own::Decoder);
}
nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned* utilization,
                                         unsigned* period_us) {
  return own::Scale(device, utilization,
                    real::nvmlDeviceGetJpgUtilization(device, utilization, period_us),
                    own::Decoder);
}
nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned* utilization,
                                         unsigned* period_us) {
  return own::Scale(device, utilization,
                    real::nvmlDeviceGetOfaUtilization(device, utilization, period_us),
                    own::Encoder);
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                             nvmlGpuDynamicPstatesInfo_t* info) {
  const nvmlReturn_t result = real::nvmlDeviceGetDynamicPstatesInfo(device, info);
  if (info == nullptr) return result;
  own::Scale(device, &info->utilization[0].percentage, result, own::Sm);             // graphics
  own::Scale(device, &info->utilization[1].percentage, result, own::Memory);         // frame buffer
  own::Scale(device, &info->utilization[2].percentage, result, own::Decoder);        // video
  return own::Scale(device, &info->utilization[3].percentage, result, own::Memory);  // bus
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long last_seen_us, nvmlValueType_t* value_type,
                                  unsigned* count, nvmlSample_t* samples) {
  const nvmlReturn_t result =
      real::nvmlDeviceGetSamples(device, type, last_seen_us, value_type, count, samples);
  if (result != NVML_SUCCESS || samples == nullptr || count == nullptr || !own::Fenced())
    return result;
  const int card = own::CardOf(device);
  if (card < 0) return result;
  own::Share share;
  switch (type) {
    case NVML_GPU_UTILIZATION_SAMPLES:
      share = own::ShareOf(device, card, own::Sm);
      break;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
      share = own::ShareOf(device, card, own::Memory);
      break;
    case NVML_ENC_UTILIZATION_SAMPLES:
    case NVML_OFA_UTILIZATION_SAMPLES:
      share = own::ShareOf(device, card, own::Encoder);
      break;
    case NVML_DEC_UTILIZATION_SAMPLES:
    case NVML_JPG_UTILIZATION_SAMPLES:
      share = own::ShareOf(device, card, own::Decoder);
      break;
    default:
      return result;  // power and clocks are the card's
  }
  for (unsigned i = 0; i < *count; ++i)
    samples[i].sampleValue.uiVal = share.Of(samples[i].sampleValue.uiVal);
  return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t* samples,
                                             unsigned* count, unsigned long long last_seen_us) {
  const int card = count != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetProcessUtilization(device, samples, count, last_seen_us);
  const own::OwnProcesses processes(card);
  return own::Thin(
      count, samples,
      [&](unsigned* n, nvmlProcessUtilizationSample_t* to) {
        return real::nvmlDeviceGetProcessUtilization(device, to, n, last_seen_us);
      },
      [&](nvmlProcessUtilizationSample_t& sample) {
        const own::OwnProcess* process = processes.Find(sample.pid);
        if (process != nullptr) sample.pid = process->pid;
        return process != nullptr;
      });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t* info) {
  const int card = info != nullptr && own::Fenced() ? own::CardOf(device) : -1;
  if (card < 0) return real::nvmlDeviceGetProcessesUtilizationInfo(device, info);
  const own::OwnProcesses processes(card);
  return own::Thin(
      &info->processSamplesCount, info->procUtilArray,
      [&](unsigned* n, nvmlProcessUtilizationInfo_v1_t* to) {
        nvmlProcessesUtilizationInfo_t request = *info;
        request.processSamplesCount = *n;
        request.procUtilArray = to;
        const nvmlReturn_t result = real::nvmlDeviceGetProcessesUtilizationInfo(device, &request);
        *n = request.processSamplesCount;
        return result;
      },
      [&](nvmlProcessUtilizationInfo_v1_t& sample) {
        const own::OwnProcess* process = processes.Find(sample.pid);
        if (process != nullptr) sample.pid = process->pid;
        return process != nullptr;
      });
}

}  // extern "C"
