// The machine as the subcommands look at it: opens the driver, reads the state, takes a snapshot.
#pragma once

#include <memory>
#include <string>

#include "driver/nvml.h"
#include "watch/judge.h"
#include "watch/snapshot.h"

namespace tessera::cli {

// A snapshot with the findings that stood in two looks.
struct Observed {
  watch::Snapshot snapshot;
  std::vector<watch::Finding> findings;
};

class Look {
 public:
  Look();

  driver::Nvml* nvml() const { return nvml_ ? nvml_->get() : nullptr; }
  const Result<std::unique_ptr<driver::Nvml>>& opened() const { return nvml_; }

  watch::Snapshot Take(const std::string& state);
  // As Take; when something is found, looks a second time after kSecondLook, so that a process
  // caught in the middle of an allocation is not accused.
  Observed Observe(const std::string& state);

 private:
  Result<std::unique_ptr<driver::Nvml>> nvml_;
};

// True when this very process runs inside a slice: what the driver tells it is then the slice's
// view, not the machine's.
bool InsideSlice();

}  // namespace tessera::cli
