// A driver whose answers a test writes down.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "driver/nvml.h"

namespace tessera::driver::testing {

class FakeNvml : public Nvml {
 public:
  Result<DriverInfo> Driver() override { return driver; }
  Result<std::vector<Result<Card>>> Cards() override { return cards; }
  Result<std::vector<Result<CardUsage>>> Usages() override { return usages; }
  Status SetMemoryLimit(int card, const std::string& cgroup, std::uint64_t hard) override {
    if (!driver) return Fail(driver.error());
    if (!driver->memory_limits) return Fail(Code::kUnimplemented, "no memory limits");
    if (set_limit_error.code != Code::kInternal) return Fail(set_limit_error);
    limits[{card, cgroup}] = hard;
    return {};
  }
  Result<MemoryLimit> GetMemoryLimit(int card, const std::string& cgroup) override {
    if (get_limit_error.code != Code::kInternal) return Fail(get_limit_error);
    const auto found = limits.find({card, cgroup});
    if (found == limits.end()) return Fail(Code::kNotFound, "no limit on " + cgroup);
    return MemoryLimit{0, found->second, 0};
  }

  Result<DriverInfo> driver = DriverInfo{"580.95.05", 13000, "libnvidia-ml.so.1", false};
  Result<std::vector<Result<Card>>> cards = std::vector<Result<Card>>{};
  Result<std::vector<Result<CardUsage>>> usages = std::vector<Result<CardUsage>>{};
  std::map<std::pair<int, std::string>, std::uint64_t> limits;
  Error set_limit_error, get_limit_error;  // kInternal = none
};

// "NVIDIA A10G", 23,028 MiB, UUID ending in the index.
Card A10G(int index);

}  // namespace tessera::driver::testing
