// A slice that cannot be used shows nothing: the library does not start, and says why once.
#include "entry/refusal.h"
#include "real.h"

namespace {
// NVML has no code for "not allowed to start"; this one says that the machine is to blame, not the
// arguments.
constexpr nvmlReturn_t kRefused = NVML_ERROR_OPERATING_SYSTEM;
}  // namespace

extern "C" {
nvmlReturn_t nvmlInit() {
  return tessera::fence::SliceRefused() ? kRefused : tessera::fence::real::nvmlInit();
}
nvmlReturn_t nvmlInit_v2() {
  return tessera::fence::SliceRefused() ? kRefused : tessera::fence::real::nvmlInit_v2();
}
nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  return tessera::fence::SliceRefused() ? kRefused : tessera::fence::real::nvmlInitWithFlags(flags);
}
}
