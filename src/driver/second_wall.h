// The second wall: the driver's own memory limit on the cgroup of a slice, where the driver has
// one.
//
// It catches what goes round the fence (static programs, raw ioctls). It needs root, cgroup v2 and
// a driver that has the limit (R615 and later); elsewhere it is off, and `explain` and `doctor` say
// so.
//
//   SecondWallProbe probe = ProbeSecondWall(nvml, HostForSecondWall());
//   if (probe.available) wall = RaiseSecondWall(*nvml, probe, slice_id, {{card, bytes}});
//   ... in the child before exec: wall->Enter(getpid());
//   ... when the slice ends: wall->Lower();
//
// Units: bytes. Thread safety: one thread. Nothing here throws.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "driver/nvml.h"

namespace tessera::driver {

struct WallHost {
  bool root = false;
  std::string cgroup2;  // where the cgroup v2 tree is mounted; empty = nowhere
};

struct SecondWallProbe {
  bool available = false;
  std::string reason;  // why not, or what it is
  std::string cgroup2;
};

struct WallCard {
  int card = 0;  // NVML's index
  std::uint64_t hard_bytes = 0;
};

WallHost HostForSecondWall();

// Pure but for asking the driver whether it has the limit: newer libraries have the call on older
// drivers too, where it answers that it is not supported. `nvml` may be null (no driver).
SecondWallProbe ProbeSecondWall(Nvml* nvml, const WallHost& host);

class SecondWall {
 public:
  const std::string& cgroup() const { return cgroup_; }

  // Puts a process (and so all that it starts) behind the wall.
  Status Enter(pid_t pid) const;
  Status SetLimit(Nvml& nvml, const WallCard& limit) const;
  // Takes the limits of these cards away (the driver also does when the cgroup goes) and removes
  // the cgroup. `nvml` may be null. kFailedPrecondition while a process is still in it.
  Status Lower(Nvml* nvml = nullptr, std::span<const WallCard> cards = {}) const;

  // The wall of a slice that stands already, or will: its cgroup is named by the slice id alone.
  static SecondWall Of(const std::string& cgroup2, const std::string& slice_id);

 private:
  explicit SecondWall(std::string cgroup) : cgroup_(std::move(cgroup)) {}
  std::string cgroup_;
};

// Makes the cgroup and sets the limits; undoes all of it when one of them fails. Takes over an
// empty cgroup that an earlier launcher left behind.
Result<SecondWall> RaiseSecondWall(Nvml& nvml, const SecondWallProbe& probe,
                                   const std::string& slice_id, std::span<const WallCard> cards);

}  // namespace tessera::driver
