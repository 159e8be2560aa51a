// What the board measures, worked out from the load unless `tessera-sim inject` set it.
#pragma once

#include "sim/nvml/library.h"

namespace tessera::sim::nvml {

inline constexpr unsigned int kIdleClockMhz = 210;  // lowest graphics clock of Ampere and later
inline constexpr unsigned int kSlowdownC = 95, kShutdownC = 98, kMaxC = 88;

struct Sensors {
  unsigned int temperature_c, power_mw, sm_clock_mhz, memory_clock_mhz;
  unsigned long long throttle_reasons;
  bool busy;
};
Sensors ReadSensors(nvmlDevice_t device);

// Energy since the node was made: idle power plus what the work took.
unsigned long long EnergyMillijoules(nvmlDevice_t device);

}  // namespace tessera::sim::nvml
