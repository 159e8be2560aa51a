// What the files of the simulated NVML share.
//
// Thread safety: as NVML's: any function from any thread between Init and the last Shutdown.
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <array>
#include <cstdint>

#include "sim/state/node_state.h"

namespace tessera::sim::nvml {

// What an nvmlDevice_t points at: a card (mig < 0) or one of its MIG devices.
struct Device {
  int card;
  int mig;
};

// Whether `call` may go on: NVML_ERROR_UNINITIALIZED, INVALID_ARGUMENT for a bad handle,
// GPU_IS_LOST, or an injected fault's result. The second form is for functions that take no device.
nvmlReturn_t Gate(const char* call, nvmlDevice_t device);
nvmlReturn_t Gate(const char* call, std::nullptr_t);

const char* ErrorText(nvmlReturn_t result);

// nullptr for anything that is not a handle of this node.
const Device* DeviceOf(nvmlDevice_t handle);
nvmlDevice_t HandleOf(int card, int mig = -1);

// After the gate: the node, and the card that a handle means.
NodeState& Node();
inline const CardSpec& Spec(nvmlDevice_t handle) { return Node().specs[DeviceOf(handle)->card]; }
inline CardState& State(nvmlDevice_t handle) { return Node().cards[DeviceOf(handle)->card]; }
inline const MigSpec* Mig(nvmlDevice_t handle) {
  const Device& device = *DeviceOf(handle);
  return device.mig < 0 ? nullptr : &Node().specs[device.card].mig[device.mig];
}
int CardCount();

// Copies `text` with its end, or NVML_ERROR_INSUFFICIENT_SIZE / INVALID_ARGUMENT.
nvmlReturn_t CopyText(const char* text, char* to, unsigned int length);

// "GPU-7e55e2a0-…" / "MIG-…"; `to` has room for 48.
void UuidText(const char* prefix, const std::uint8_t uuid[16], char* to);

// The windows of an engine that ended last, oldest first: windows[kUtilSamples - 1] ended
// `since_ns` ago.
struct Windows {
  std::array<TimelineLog::Window, kUtilSamples> list;
  std::uint64_t partial_busy_ns, partial_ns;  // of the window under way
};
Windows CollectWindows(int card, int engine);

// Shares of the last full and the current window, percent.
struct Load {
  unsigned int compute, memory;
};
Load CurrentLoad(int card);

// A process with something on a card, pid as the caller calls it.
struct User {
  unsigned int pid;
  std::uint64_t bytes, busy_ns, started_ns, owner;
  unsigned int gpu_instance, compute_instance;  // kNoInstance unless it is on a MIG device
};
inline constexpr unsigned int kNoInstance = 0xffffffff;
// Fills up to `room` users of a card (all its MIG devices) or of one MIG device; answers how many
// there are.
int ListUsers(const Device& device, User* users, int room);

std::uint64_t RealTimeUs(std::uint64_t monotonic_ns);

}  // namespace tessera::sim::nvml
