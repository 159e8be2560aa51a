// How cards hang together: PCIe, NVLink, NUMA.
#include <stdio.h>

#include <algorithm>

#include "impl.h"
#include "sim/nvml/library.h"

namespace tessera::sim::nvml {
namespace {

constexpr std::uint32_t kNvlink = 3;
constexpr int kDirectPeers =
    3;  // with more NVLink peers than that the links go to switches, as on an HGX board

nvmlReturn_t Put(unsigned int value, unsigned int* to) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

// What is at the other end of a link: a card, or -1 for a switch.
int RemoteCard(const CardSpec& spec, unsigned int link) {
  int peers[kMaxCards];
  int count = 0;
  for (int i = 0; i < CardCount(); ++i) {
    if (spec.link_type[i] == kNvlink) peers[count++] = i;
  }
  return count == 0 || count > kDirectPeers ? -1 : peers[link % static_cast<unsigned int>(count)];
}

// A link that the card has.
nvmlReturn_t CheckLink(nvmlDevice_t device, unsigned int link) {
  if (link >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
  return link < Spec(device).nvlink_count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

std::uint32_t LinkType(nvmlDevice_t a, nvmlDevice_t b) {
  return Spec(a).link_type[DeviceOf(b)->card];
}

// PCIe transfer rate per lane in MT/s by generation, PCI-SIG.
unsigned int LaneSpeed(std::uint32_t generation) {
  constexpr unsigned int kSpeeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
  return generation < std::size(kSpeeds) ? kSpeeds[generation] : kSpeeds[std::size(kSpeeds) - 1];
}

}  // namespace

nvmlReturn_t DeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* g) {
  return Put(Spec(device).pcie_generation, g);
}
nvmlReturn_t DeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* g) {
  return Put(Spec(device).pcie_generation, g);
}
nvmlReturn_t DeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* g) {
  return Put(Spec(device).pcie_generation, g);
}
nvmlReturn_t DeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return Put(Spec(device).pcie_width, width);
}
nvmlReturn_t DeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return Put(Spec(device).pcie_width, width);
}
nvmlReturn_t DeviceGetPcieSpeed(nvmlDevice_t device, unsigned int* speed) {
  return Put(LaneSpeed(Spec(device).pcie_generation), speed);
}
nvmlReturn_t DeviceGetPcieReplayCounter(nvmlDevice_t, unsigned int* count) { return Put(0, count); }

nvmlReturn_t DeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int* speed) {
  // NVML_PCIE_LINK_MAX_SPEED_2500MBPS = 1 and so on: the generation.
  return Put(Spec(device).pcie_generation, speed);
}

nvmlReturn_t DeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                     unsigned int* kilobytes) {
  if (counter < 0 || counter >= NVML_PCIE_UTIL_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  // Transmitted by the card = copied from it. KB/s over the last window.
  const Windows windows =
      CollectWindows(DeviceOf(device)->card, counter == NVML_PCIE_UTIL_TX_BYTES ? 2 : 1);
  const std::uint64_t busy = windows.list.back().busy_ns;
  return Put(static_cast<unsigned int>(Spec(device).link_bytes_per_s / 1024 * busy / kUtilWindowNs),
             kilobytes);
}

nvmlReturn_t DeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                  nvmlEnableState_t* active) {
  if (active == nullptr || link >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
  if (Spec(device).nvlink_count == 0) return NVML_ERROR_NOT_SUPPORTED;
  *active = link < Spec(device).nvlink_count ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int* version) {
  if (const nvmlReturn_t bad = CheckLink(device, link)) return bad;
  // NVLink 2 with Volta, 3 with Ampere, 4 with Hopper, 5 with Blackwell.
  const std::uint32_t major = Spec(device).cc_major;
  return Put(major < 8 ? 2 : major == 8 ? 3 : major == 9 ? 4 : 5, version);
}

nvmlReturn_t DeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                       nvmlNvLinkCapability_t capability, unsigned int* result) {
  if (capability < 0 || capability >= NVML_NVLINK_CAP_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t bad = CheckLink(device, link)) return bad;
  return Put(capability == NVML_NVLINK_CAP_P2P_SUPPORTED ||
                     capability == NVML_NVLINK_CAP_P2P_ATOMICS ||
                     capability == NVML_NVLINK_CAP_VALID
                 ? 1
                 : 0,
             result);
}

nvmlReturn_t DeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                             nvmlIntNvLinkDeviceType_t* type) {
  if (type == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t bad = CheckLink(device, link)) return bad;
  *type = RemoteCard(Spec(device), link) < 0 ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                             : NVML_NVLINK_DEVICE_TYPE_GPU;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                             nvmlPciInfo_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t bad = CheckLink(device, link)) return bad;
  const int card = RemoteCard(Spec(device), link);
  if (card >= 0) return DeviceGetPciInfo_v3(HandleOf(card), pci);
  *pci = {};
  pci->bus = 0xc0 + link % 6;  // six switches on a board, behind one bridge
  pci->pciDeviceId = 0x1af110de;
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xff);
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                          nvmlPciInfo_t* pci) {
  nvmlPciInfo_t whole;
  const nvmlReturn_t result = DeviceGetNvLinkRemotePciInfo_v2(device, link, &whole);
  if (result == NVML_SUCCESS && pci != nullptr) {
    const nvmlPciInfo_t kept = *pci;
    *pci = whole;
    std::copy(std::begin(kept.busId), std::end(kept.busId), std::begin(pci->busId));  // v1 had none
  }
  return pci == nullptr ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t DeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                         nvmlNvLinkErrorCounter_t counter,
                                         unsigned long long* value) {
  if (value == nullptr || counter < 0 || counter >= NVML_NVLINK_ERROR_COUNT)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t bad = CheckLink(device, link)) return bad;
  *value = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
                                nvmlGpuP2PStatus_t* status) {
  if (status == nullptr || index < 0 || index >= NVML_P2P_CAPS_INDEX_UNKNOWN)
    return NVML_ERROR_INVALID_ARGUMENT;
  const std::uint32_t type = LinkType(a, b);
  const bool nvlink = type == kNvlink;
  bool good = type != 0;
  if (index == NVML_P2P_CAPS_INDEX_NVLINK || index == NVML_P2P_CAPS_INDEX_ATOMICS) good = nvlink;
  *status = good        ? NVML_P2P_STATUS_OK
            : type == 0 ? NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
                        : NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                             nvmlGpuTopologyLevel_t* level) {
  if (level == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::uint32_t type = LinkType(a, b);
  if (DeviceOf(a)->card == DeviceOf(b)->card) {
    *level = NVML_TOPOLOGY_INTERNAL;
  } else if (Spec(a).numa_node != Spec(b).numa_node) {
    *level = NVML_TOPOLOGY_SYSTEM;
  } else {
    *level = type == 1   ? NVML_TOPOLOGY_SINGLE
             : type == 2 ? NVML_TOPOLOGY_HOSTBRIDGE
                         : NVML_TOPOLOGY_NODE;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                          unsigned int* count, nvmlDevice_t* devices) {
  if (count == nullptr || (devices == nullptr && *count > 0)) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned int found = 0;
  for (int card = 0; card < CardCount(); ++card) {
    nvmlGpuTopologyLevel_t between;
    if (card == DeviceOf(device)->card) continue;
    DeviceGetTopologyCommonAncestor(device, HandleOf(card), &between);
    if (between > level) continue;
    if (found < *count) devices[found] = HandleOf(card);
    ++found;
  }
  *count = found;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetNumaNodeId(nvmlDevice_t device, unsigned int* node) {
  return Put(Spec(device).numa_node, node);
}

// The host's processors are not described; every one is as near as any other.
nvmlReturn_t DeviceGetCpuAffinity(nvmlDevice_t, unsigned int size, unsigned long* set) {
  if (set == nullptr || size == 0) return NVML_ERROR_INVALID_ARGUMENT;
  std::fill_n(set, size, ~0UL);
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size,
                                             unsigned long* set, nvmlAffinityScope_t scope) {
  return scope > NVML_AFFINITY_SCOPE_SOCKET ? NVML_ERROR_INVALID_ARGUMENT
                                            : DeviceGetCpuAffinity(device, size, set);
}

nvmlReturn_t DeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long* set,
                                     nvmlAffinityScope_t scope) {
  if (set == nullptr || size == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET)
    return NVML_ERROR_INVALID_ARGUMENT;
  std::fill_n(set, size, 0UL);
  set[0] = 1UL << Spec(device).numa_node % 64;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetGpuFabricInfo(nvmlDevice_t, nvmlGpuFabricInfo_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *info = {};
  info->state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

nvmlReturn_t DeviceGetGpuFabricInfoV(nvmlDevice_t, nvmlGpuFabricInfoV_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (info->version != nvmlGpuFabricInfo_v2 && info->version != nvmlGpuFabricInfo_v3) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  std::fill(std::begin(info->clusterUuid), std::end(info->clusterUuid), 0);
  info->status = NVML_SUCCESS;
  info->cliqueId = 0;
  info->state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
  info->healthMask = 0;
  if (info->version == nvmlGpuFabricInfo_v3) info->healthSummary = 0;
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
