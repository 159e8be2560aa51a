#include "sim/nvml/sensors.h"

#include <string.h>

#include <algorithm>

#include "impl.h"

namespace tessera::sim::nvml {
namespace {

nvmlReturn_t Put(unsigned int value, unsigned int* to) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

bool KnownClock(nvmlClockType_t type) {
  return type >= NVML_CLOCK_GRAPHICS && type < NVML_CLOCK_COUNT;
}

unsigned int MaxClock(const CardSpec& spec, nvmlClockType_t type) {
  // The video clock runs at 8/9 of the graphics clock on the cards described here.
  return type == NVML_CLOCK_MEM     ? spec.memory_clock_mhz
         : type == NVML_CLOCK_VIDEO ? spec.sm_clock_mhz * 8 / 9
                                    : spec.sm_clock_mhz;
}

unsigned int CurrentClock(nvmlDevice_t device, nvmlClockType_t type) {
  const Sensors sensors = ReadSensors(device);
  if (type == NVML_CLOCK_MEM) return sensors.memory_clock_mhz;
  return type == NVML_CLOCK_VIDEO ? sensors.sm_clock_mhz * 8 / 9 : sensors.sm_clock_mhz;
}

nvmlReturn_t Threshold(nvmlTemperatureThresholds_t type, unsigned int* celsius) {
  switch (type) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
      return Put(kShutdownC, celsius);
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
      return Put(kSlowdownC, celsius);
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
      return Put(kSlowdownC, celsius);
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
      return Put(kMaxC, celsius);
    case NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN:
    case NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR:
    case NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX:
    case NVML_TEMPERATURE_THRESHOLD_GPS_CURR:
      return NVML_ERROR_NOT_SUPPORTED;
    default:
      return NVML_ERROR_INVALID_ARGUMENT;
  }
}

}  // namespace

Sensors ReadSensors(nvmlDevice_t device) {
  const int card = DeviceOf(device)->card;
  const CardSpec& spec = Spec(device);
  const CardState& state = State(device);
  const Load load = CurrentLoad(card);
  Sensors sensors{};
  sensors.busy = load.compute > 0 || load.memory > 0 || ListUsers({card, -1}, nullptr, 0) > 0;
  // 30 degrees idle, 75 under full load; power up to 90 % of the limit: usual for inference.
  sensors.temperature_c = 30 + load.compute * 45 / 100;
  sensors.power_mw =
      spec.idle_power_mw +
      (std::max(spec.power_limit_mw * 9 / 10, spec.idle_power_mw) - spec.idle_power_mw) / 100 *
          load.compute;
  sensors.sm_clock_mhz = sensors.busy ? spec.sm_clock_mhz : kIdleClockMhz;
  sensors.memory_clock_mhz = sensors.busy ? spec.memory_clock_mhz : 405;
  sensors.throttle_reasons = sensors.busy ? 0 : nvmlClocksEventReasonGpuIdle;
  if (const std::uint32_t set = state.temperature_c.load()) sensors.temperature_c = set;
  if (const std::uint32_t set = state.power_mw.load()) sensors.power_mw = set;
  if (const std::uint32_t set = state.sm_clock_mhz.load()) sensors.sm_clock_mhz = set;
  if (const std::uint64_t set = state.throttle_reasons.load()) sensors.throttle_reasons = set;
  if (sensors.temperature_c >= kSlowdownC)
    sensors.throttle_reasons |= nvmlClocksThrottleReasonHwThermalSlowdown;
  return sensors;
}

unsigned long long EnergyMillijoules(nvmlDevice_t device) {
  const CardSpec& spec = Spec(device);
  const Timeline timeline = PeekTimeline(Node(), DeviceOf(device)->card, 0, nullptr);
  const unsigned long long idle = NowNs() / 1'000'000 * spec.idle_power_mw / 1000;
  return idle + timeline.busy_ns_total / 1'000'000 * (spec.power_limit_mw * 9 / 10) / 1000;
}

nvmlReturn_t DeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* mhz) {
  return KnownClock(type) ? Put(CurrentClock(device, type), mhz) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* mhz) {
  return KnownClock(type) ? Put(MaxClock(Spec(device), type), mhz) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
                                        unsigned int* mhz) {
  return DeviceGetMaxClockInfo(device, type, mhz);
}
nvmlReturn_t DeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
                                               unsigned int* mhz) {
  return DeviceGetMaxClockInfo(device, type, mhz);
}
nvmlReturn_t DeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type,
                                            unsigned int* mhz) {
  return DeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t DeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                            unsigned int* mhz) {
  if (id < NVML_CLOCK_ID_CURRENT || id >= NVML_CLOCK_ID_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  return id == NVML_CLOCK_ID_CURRENT ? DeviceGetClockInfo(device, type, mhz)
                                     : DeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t DeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int* count,
                                            unsigned int* mhz) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const bool fits = *count >= 1 && mhz != nullptr;
  *count = 1;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  mhz[0] = Spec(device).memory_clock_mhz;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz,
                                              unsigned int* count, unsigned int* mhz) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const CardSpec& spec = Spec(device);
  if (memory_mhz != spec.memory_clock_mhz) return NVML_ERROR_NOT_FOUND;
  const unsigned int steps =
      (spec.sm_clock_mhz - kIdleClockMhz) / 15 + 1;  // clocks go in steps of 15 MHz
  const bool fits = *count >= steps && mhz != nullptr;
  *count = steps;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < steps; ++i) mhz[i] = spec.sm_clock_mhz - 15 * i;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                  unsigned int* celsius) {
  return sensor == NVML_TEMPERATURE_GPU ? Put(ReadSensors(device).temperature_c, celsius)
                                        : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  temperature->temperature = static_cast<int>(ReadSensors(device).temperature_c);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetTemperatureThreshold(nvmlDevice_t, nvmlTemperatureThresholds_t type,
                                           unsigned int* celsius) {
  return Threshold(type, celsius);
}

nvmlReturn_t DeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t* margin) {
  if (margin == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (margin->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  margin->marginTemperature =
      static_cast<int>(kSlowdownC) - static_cast<int>(ReadSensors(device).temperature_c);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetThermalSettings(nvmlDevice_t device, unsigned int,
                                      nvmlGpuThermalSettings_t* settings) {
  if (settings == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *settings = {};
  settings->count = 1;
  settings->sensor[0] = {NVML_THERMAL_CONTROLLER_GPU_INTERNAL, -40, 127,
                         static_cast<int>(ReadSensors(device).temperature_c),
                         NVML_THERMAL_TARGET_GPU};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNumFans(nvmlDevice_t device, unsigned int* count) {
  return Put(Spec(device).fan_count, count);
}

nvmlReturn_t DeviceGetFanSpeed(nvmlDevice_t device, unsigned int* percent) {
  if (Spec(device).fan_count == 0)
    return NVML_ERROR_NOT_SUPPORTED;  // passive: the server's fans cool it
  const unsigned int celsius = ReadSensors(device).temperature_c;
  return Put(celsius <= 40 ? 0 : std::min(100U, (celsius - 40) * 2), percent);
}

nvmlReturn_t DeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int* percent) {
  if (Spec(device).fan_count == 0) return NVML_ERROR_NOT_SUPPORTED;
  return fan < Spec(device).fan_count ? DeviceGetFanSpeed(device, percent)
                                      : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t DeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int fan, unsigned int* percent) {
  return DeviceGetFanSpeed_v2(device, fan, percent);
}

nvmlReturn_t DeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int* least, unsigned int* most) {
  if (Spec(device).fan_count == 0) return NVML_ERROR_NOT_SUPPORTED;
  if (least == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *least = 30;
  return Put(100, most);
}

nvmlReturn_t DeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
  if (state == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *state = ReadSensors(device).busy ? NVML_PSTATE_0 : NVML_PSTATE_8;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* state) {
  return DeviceGetPerformanceState(device, state);
}

nvmlReturn_t DeviceGetSupportedPerformanceStates(nvmlDevice_t, nvmlPstates_t* states,
                                                 unsigned int size) {
  if (states == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  constexpr nvmlPstates_t kStates[] = {NVML_PSTATE_0, NVML_PSTATE_8};
  const unsigned int room = size / sizeof(nvmlPstates_t);
  if (room < std::size(kStates)) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < room; ++i)
    states[i] = i < std::size(kStates) ? kStates[i] : NVML_PSTATE_UNKNOWN;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const Load load = CurrentLoad(DeviceOf(device)->card);
  *info = {};
  info->flags = 1;
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU] = {1, load.compute, 100, 0};
  info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB] = {1, load.memory, 100, 0};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  if (reasons == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *reasons = ReadSensors(device).throttle_reasons;
  return NVML_SUCCESS;
}
nvmlReturn_t DeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                   unsigned long long* reasons) {
  return DeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t DeviceGetSupportedClocksEventReasons(nvmlDevice_t, unsigned long long* reasons) {
  if (reasons == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *reasons = nvmlClocksEventReasonAll;
  return NVML_SUCCESS;
}
nvmlReturn_t DeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                                     unsigned long long* reasons) {
  return DeviceGetSupportedClocksEventReasons(device, reasons);
}

nvmlReturn_t DeviceGetViolationStatus(nvmlDevice_t, nvmlPerfPolicyType_t,
                                      nvmlViolationTime_t* time) {
  if (time == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *time = {RealTimeUs(NowNs()), 0};
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
  return Put(ReadSensors(device).power_mw, milliwatts);
}
nvmlReturn_t DeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return Put(Spec(device).power_limit_mw, milliwatts);
}
nvmlReturn_t DeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return Put(Spec(device).power_limit_mw, milliwatts);
}
nvmlReturn_t DeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int* milliwatts) {
  return Put(Spec(device).power_limit_mw, milliwatts);
}
nvmlReturn_t DeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* least,
                                                      unsigned int* most) {
  if (least == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *least = Spec(device).power_limit_mw / 3;
  return Put(Spec(device).power_limit_mw, most);
}

nvmlReturn_t DeviceGetPowerManagementMode(nvmlDevice_t, nvmlEnableState_t* mode) {
  if (mode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *mode = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetPowerSource(nvmlDevice_t, nvmlPowerSource_t* source) {
  return Put(NVML_POWER_SOURCE_AC, source);
}

nvmlReturn_t DeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
  if (millijoules == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *millijoules = EnergyMillijoules(device);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetAdaptiveClockInfoStatus(nvmlDevice_t, unsigned int* status) {
  return Put(0, status);
}

}  // namespace tessera::sim::nvml
