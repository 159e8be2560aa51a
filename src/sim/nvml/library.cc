// Initialisation, handles, and the gate that every call passes.
#include "sim/nvml/library.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "impl.h"

namespace tessera::sim::nvml {
namespace {

std::atomic<int> users{0};

constexpr int kDevicesPerCard = 1 + kMaxMigDevices;
constexpr auto kDevices = [] {
  std::array<Device, kMaxCards * kDevicesPerCard> devices{};
  for (int i = 0; i < kMaxCards * kDevicesPerCard; ++i)
    devices[i] = {i / kDevicesPerCard, i % kDevicesPerCard - 1};
  return devices;
}();

nvmlReturn_t Start(const char* call) {
  if (AttachNode() == nullptr) return NVML_ERROR_DRIVER_NOT_LOADED;
  if (const int fault = InjectedFault(call, -1)) return static_cast<nvmlReturn_t>(fault);
  users.fetch_add(1);
  return NVML_SUCCESS;
}

}  // namespace

NodeState& Node() { return *AttachNode(); }
int CardCount() { return static_cast<int>(Node().card_count); }

nvmlDevice_t HandleOf(int card, int mig) {
  return reinterpret_cast<nvmlDevice_t>(
      const_cast<Device*>(&kDevices[card * kDevicesPerCard + mig + 1]));
}

const Device* DeviceOf(nvmlDevice_t handle) {
  const auto at =
      reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(kDevices.data());
  if (at >= sizeof kDevices || at % sizeof(Device) != 0) return nullptr;
  const Device& device = kDevices[at / sizeof(Device)];
  if (device.card >= CardCount()) return nullptr;
  if (device.mig >= static_cast<int>(Node().specs[device.card].mig_count)) return nullptr;
  return &device;
}

nvmlReturn_t Gate(const char* call, std::nullptr_t) {
  if (users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  return static_cast<nvmlReturn_t>(InjectedFault(call, -1));
}

nvmlReturn_t Gate(const char* call, nvmlDevice_t handle) {
  if (users.load() <= 0) return NVML_ERROR_UNINITIALIZED;
  const Device* device = DeviceOf(handle);
  if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (Node().cards[device->card].lost.load() != 0) return NVML_ERROR_GPU_IS_LOST;
  return static_cast<nvmlReturn_t>(InjectedFault(call, device->card));
}

nvmlReturn_t Init() { return Start("nvmlInit"); }
nvmlReturn_t Init_v2() { return Start("nvmlInit_v2"); }

nvmlReturn_t InitWithFlags(unsigned int flags) {
  if ((flags & ~(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) != 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  return Start("nvmlInitWithFlags");
}

nvmlReturn_t Shutdown() {
  int count = users.load();
  do {
    if (count <= 0) return NVML_ERROR_UNINITIALIZED;
  } while (!users.compare_exchange_weak(count, count - 1));
  return NVML_SUCCESS;
}

nvmlReturn_t CopyText(const char* text, char* to, unsigned int length) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::size_t size = strlen(text) + 1;
  if (length < size) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(to, text, size);
  return NVML_SUCCESS;
}

void UuidText(const char* prefix, const std::uint8_t u[16], char* to) {
  snprintf(to, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           prefix, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
           u[13], u[14], u[15]);
}

std::uint64_t RealTimeUs(std::uint64_t monotonic_ns) {
  timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  const std::uint64_t now = static_cast<std::uint64_t>(real.tv_sec) * 1'000'000'000 +
                            static_cast<std::uint64_t>(real.tv_nsec);
  return (now - NowNs() + monotonic_ns) / 1000;
}

const char* ErrorText(nvmlReturn_t result) {
  // The words of the real library, which tools print and match.
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED:
      return "Already Initialized";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_INSUFFICIENT_POWER:
      return "Insufficient External Power";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
      return "Timeout";
    case NVML_ERROR_IRQ_ISSUE:
      return "Interrupt Request Issue";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
      return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "Function Not Found";
    case NVML_ERROR_CORRUPTED_INFOROM:
      return "Corrupted infoROM";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED:
      return "GPU requires reset";
    case NVML_ERROR_OPERATING_SYSTEM:
      return "GPU access blocked by the operating system";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return "Driver/library version mismatch";
    case NVML_ERROR_IN_USE:
      return "In use by another client";
    case NVML_ERROR_MEMORY:
      return "Insufficient Memory";
    case NVML_ERROR_NO_DATA:
      return "No data";
    case NVML_ERROR_VGPU_ECC_NOT_SUPPORTED:
      return "vGPU ECC not supported";
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
      return "Insufficient Resources";
    case NVML_ERROR_FREQ_NOT_SUPPORTED:
      return "Frequency not supported";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument version mismatch";
    case NVML_ERROR_DEPRECATED:
      return "Deprecated";
    case NVML_ERROR_NOT_READY:
      return "Not Ready";
    case NVML_ERROR_GPU_NOT_FOUND:
      return "GPU Not Found";
    case NVML_ERROR_INVALID_STATE:
      return "Invalid State";
    case NVML_ERROR_RESET_TYPE_NOT_SUPPORTED:
      return "Reset Type Not Supported";
    default:
      return "Unknown Error";
  }
}

}  // namespace tessera::sim::nvml
