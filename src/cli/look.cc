#include "cli/look.h"

#include <unistd.h>

namespace tessera::cli {
namespace {

// Longer than an allocation takes, shorter than a person notices.
constexpr std::int64_t kSecondLookNs = 200'000'000;

}  // namespace

Look::Look() : nvml_(driver::OpenNvml({})) {}

watch::Snapshot Look::Take(const std::string& state) {
  watch::Sources sources;
  sources.processes = &watch::RealProcesses();
  sources.clock = &base::RealClock();
  if (nvml_) {
    sources.nvml = nvml_->get();
  } else {
    sources.nvml = Fail(nvml_.error());
  }
  return watch::TakeSnapshot(state, sources);
}

Observed Look::Observe(const std::string& state) {
  Observed observed;
  observed.snapshot = Take(state);
  watch::Confirmer confirmer;
  confirmer.Confirm(watch::Judge(observed.snapshot));
  if (watch::Judge(observed.snapshot).empty()) return observed;
  base::RealClock().SleepNs(kSecondLookNs);
  observed.snapshot = Take(state);
  observed.findings = confirmer.Confirm(watch::Judge(observed.snapshot));
  return observed;
}

bool InsideSlice() {
  const std::optional<watch::Mapped> own = watch::RealProcesses().Maps(getpid(), {});
  return own && own->fence;
}

}  // namespace tessera::cli
