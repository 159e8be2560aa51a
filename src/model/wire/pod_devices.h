// Which cards the containers of a pod were promised (hami.io/vgpu-devices-to-allocate, -allocated
// and the same of other vendors).
//
//   GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;;     the first container two cards, the second none
//
// A device ends with ':', a container with ';', and none stands in a container without a device.
// Init containers come first. Read is also what older versions wrote: ",,0,0:" for a container
// without a device, "UUID,NVIDIA:" without numbers, a last separator that is missing, and further
// fields behind the fourth. `annotation` is the name for messages.
//
// The value proves nothing: pods carry it where their users may write it too.
// Errors: kInvalidArgument. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::model::wire {

inline constexpr std::size_t kMaxContainers = 1024;  // of a pod
inline constexpr std::size_t kMaxPodDevices = 4096;

struct PromisedDevice {
  std::string id;    // "GPU-..."
  std::string type;  // the vendor's word: "NVIDIA"
  // Missing in the short form of older versions: how much is not known, which is not the same as 0.
  std::optional<std::uint32_t> memory_mib;
  std::optional<std::uint32_t> cores;  // percent of the card
  friend bool operator==(const PromisedDevice&, const PromisedDevice&) = default;
};

// By container, in order.
using PodDevices = std::vector<std::vector<PromisedDevice>>;

// As many containers as the value has ends of containers: none for "". ForContainers says which
// they are.
Result<PodDevices> ReadPodDevices(std::string_view annotation, std::string_view value);

// One entry for each of the `init` + `app` containers. Entries without devices at the end are added
// or taken away: plugins lose and multiply them. `app` entries are those of an older version,
// which wrote none for init containers. kInvalidArgument when it cannot be told whose they are.
Result<PodDevices> ForContainers(std::string_view annotation, PodDevices devices, std::size_t init,
                                 std::size_t app);

// Every device needs its numbers: there is no form of today without them.
Result<std::string> WritePodDevices(std::string_view annotation, const PodDevices& devices);

}  // namespace tessera::model::wire
