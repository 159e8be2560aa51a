// The node that every description starts from: A10G cards, default costs, driver 580.
#include <stdio.h>
#include <string.h>

#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Costs DefaultCosts() {
  Costs costs{};
  costs.kernel_ns = 10'000;  // ResNet-152 kernels on a GV100 last 2-113 us (XSched, OSDI 25)
  costs.launch_queue_depth =
      1024;  // a launch blocks after about 1,024 in flight (NVIDIA developer forum)
  costs.context_slice_ns =
      1'024'000;  // default of the open kernel modules: 128 << 3 us, Volta and later
  costs.context_switch_ns = 32'000;  // preemption p99 on a GV100 (XSched, OSDI 25)
  costs.event_record_ns = 2'500;     // 400,000 timed events per second on a V100 (NVTX issue 3)
  costs.vmm_create_ns_per_block =
      193'000;  // A100, 2 MiB handles (kvcached bench_vmm), as the next three
  costs.vmm_map_ns_per_block = 1'450;
  costs.vmm_access_ns_per_block = 36'000;
  costs.vmm_unmap_ns_per_block = 26'000;
  costs.pageable_permille = 450;  // 5-6 of 12 GB/s over PCIe 3 x16 (dask-cuda issue 98)
  costs.host_ns_scale_permille = 0;
  return costs;
}

// NVIDIA A10G data sheet, nvidia-smi of AWS g5 instances (23,028 MiB), GA102 white paper (80 SMs of
// cc 8.6 on the card).
CardSpec A10g(int index) {
  CardSpec card{};
  strcpy(card.name, "NVIDIA A10G");
  strcpy(card.brand, "NVIDIA");
  snprintf(card.serial, sizeof card.serial, "13224210%05d", index);
  const std::uint8_t uuid[16] = {0x7e, 0x55, 0xe2, 0xa0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0};
  memcpy(card.uuid, uuid, sizeof uuid);
  card.uuid[15] = static_cast<std::uint8_t>(index);
  card.pci_bus = 0x10 + static_cast<std::uint32_t>(index);
  card.pci_device = 0;
  card.pci_device_id = 0x223710de;
  card.pci_subsystem_id = 0x152f10de;
  card.memory_bytes = 23'028 * kMiB;
  card.reserved_bytes = 512 * kMiB;
  card.context_bytes = 256 * kMiB;
  card.bar1_bytes = 32'768 * kMiB;
  card.sm_count = 80;
  card.cores_per_sm = 128;
  card.cc_major = 8;
  card.cc_minor = 6;
  card.sm_clock_mhz = 1710;
  card.memory_clock_mhz = 6251;
  card.power_limit_mw = 300'000;
  card.idle_power_mw = 16'000;
  card.memory_bus_bits = 384;
  card.l2_bytes = 6 * kMiB;
  card.ecc_supported = 1;
  card.link_bytes_per_s = 25'000'000'000;  // PCIe 4 x16, pinned: 25-26 GB/s
  card.pcie_generation = 4;
  card.pcie_width = 16;
  return card;
}

}  // namespace

NodeDescription DefaultNode(int card_count) {
  NodeDescription node{};
  node.driver_version_cuda = 13000;
  strcpy(node.driver_version, "580.95.05");
  node.seed = 1;
  node.card_count = static_cast<std::uint32_t>(card_count);
  node.costs = DefaultCosts();
  for (int i = 0; i < card_count && i < kMaxCards; ++i) {
    node.specs[i] = A10g(i);
    for (int j = 0; j < card_count && j < kMaxCards; ++j)
      node.specs[i].link_type[j] = i == j ? 0 : 1;
  }
  return node;
}

}  // namespace tessera::sim
