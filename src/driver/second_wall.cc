#include "driver/second_wall.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/fd.h"
#include "base/files.h"

namespace tessera::driver {
namespace {

constexpr char kParent[] = "/tessera";

Result<void> MakeCgroup(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno(path, errno);
  return {};
}

}  // namespace

WallHost HostForSecondWall() {
  WallHost host;
  host.root = geteuid() == 0;
  const Result<std::string> mounts = base::ReadKernelFile("/proc/self/mounts", 1 << 20);
  if (!mounts) return host;
  std::istringstream lines(*mounts);
  std::string device, path, type, rest;
  while (lines >> device >> path >> type && std::getline(lines, rest)) {
    if (type == "cgroup2") {
      host.cgroup2 = path;
      break;
    }
  }
  return host;
}

SecondWallProbe ProbeSecondWall(Nvml* nvml, const WallHost& host) {
  if (nvml == nullptr) return {false, "no driver", {}};
  const Result<DriverInfo> driver = nvml->Driver();
  if (!driver) return {false, driver.error().message, {}};
  const std::string lacks =
      "driver " + driver->version + " has no memory limit per cgroup (R615 has)";
  if (!driver->memory_limits) return {false, lacks, {}};
  if (host.cgroup2.empty()) return {false, "no cgroup v2 tree is mounted", {}};
  if (!host.root) return {false, "only root may set the driver's memory limit", {}};
  if (const auto limit = nvml->GetMemoryLimit(0, host.cgroup2);
      !limit && limit.error().code == Code::kUnimplemented) {
    return {false, lacks, {}};
  }
  return {true, "driver's memory limit per cgroup", host.cgroup2};
}

SecondWall SecondWall::Of(const std::string& cgroup2, const std::string& slice_id) {
  return SecondWall(cgroup2 + kParent + "/" + slice_id);
}

Status SecondWall::Enter(pid_t pid) const {
  const std::string path = cgroup_ + "/cgroup.procs";
  const base::Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return FailErrno(path, errno);
  const std::string text = std::to_string(pid);
  if (write(file.get(), text.data(), text.size()) < 0) return FailErrno(path, errno);
  return {};
}

Status SecondWall::SetLimit(Nvml& nvml, const WallCard& limit) const {
  return nvml.SetMemoryLimit(limit.card, cgroup_, limit.hard_bytes);
}

Status SecondWall::Lower(Nvml* nvml, std::span<const WallCard> cards) const {
  // The limit stays as long as there is anybody to limit.
  const Result<std::string> inside = base::ReadKernelFile(cgroup_ + "/cgroup.procs", 1 << 20);
  if (inside ? !inside->empty() : inside.error().code == Code::kDataLoss)
    return Fail(Code::kFailedPrecondition, cgroup_ + ": a process is still in it");
  for (const WallCard& card : cards) {
    // Its failure changes nothing: an empty cgroup limits nobody, and goes next.
    if (nvml != nullptr)
      static_cast<void>(nvml->SetMemoryLimit(card.card, cgroup_, kNoMemoryLimit));
  }
  if (rmdir(cgroup_.c_str()) == 0 || errno == ENOENT) return {};
  if (errno == EBUSY || errno == ENOTEMPTY) {
    return Fail(Code::kFailedPrecondition, cgroup_ + ": a process is still in it");
  }
  return FailErrno(cgroup_, errno);
}

Result<SecondWall> RaiseSecondWall(Nvml& nvml, const SecondWallProbe& probe,
                                   const std::string& slice_id, std::span<const WallCard> cards) {
  if (!probe.available) return Fail(Code::kUnimplemented, "second wall: " + probe.reason);
  if (Status made = MakeCgroup(probe.cgroup2 + kParent); !made) return Fail(made.error());
  SecondWall wall = SecondWall::Of(probe.cgroup2, slice_id);
  if (Status made = MakeCgroup(wall.cgroup()); !made) return Fail(made.error());
  for (const WallCard& card : cards) {
    if (Status set = wall.SetLimit(nvml, card); !set) {
      wall.Lower(&nvml, cards);
      return FailIn("second wall", set.error());
    }
  }
  return wall;
}

}  // namespace tessera::driver
