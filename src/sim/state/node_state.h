// The simulated node: one shared mapping that every process with the simulated driver sees.
//
// `tessera-sim` writes the description once (from YAML); libcuda.so.1 and libnvidia-ml.so.1 map the same file
// and keep there what the cards hold and do. Whatever happens to a user, SIGKILL included, the next caller finds a
// state that it can use.
//
// Thread safety: `Node` functions may be called from any thread of any process. Each card has one robust,
// process-shared mutex; no lock is held across a call that may block for simulated time.
// Invariants:
//   1. A card's used bytes = sum over process slots that are alive; a dead slot (pid and start time) is taken out
//      by whoever next needs memory or asks for figures.
//   2. Nothing but fixed-size plain data and no pointers.
//   3. Units: bytes, nanoseconds of CLOCK_MONOTONIC, MiB only where the name says so.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace tessera::sim {

inline constexpr std::uint64_t kNodeMagic = 0x3145444f4e4d4953;  // "SIMNODE1"
inline constexpr std::uint32_t kNodeLayout = 1;
inline constexpr int kMaxCards = 16;
inline constexpr int kMaxProcesses = 4608;  // more than one slice may have, so that exhaustion is the fence's
inline constexpr int kMaxFaults = 64;
inline constexpr int kMaxEngines = 3;  // compute, copy to card, copy from card

// Where the driver libraries look for the node: this variable, else kDefaultNodePath.
inline constexpr char kEnvNodePath[] = "TESSERA_SIM_NODE";
inline constexpr char kDefaultNodePath[] = "/run/tessera-sim/node";

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;  // driver's allocation block

// What the card is: written by tessera-sim, read-only afterwards. Sources of each preset stand in nodes/*.yaml.
struct CardSpec {
  char name[96];               // as cuDeviceGetName, "NVIDIA A10G"
  std::uint8_t uuid[16];
  std::uint32_t pci_domain, pci_bus, pci_device;
  std::uint32_t pci_device_id, pci_subsystem_id;
  std::uint64_t memory_bytes;  // as cuDeviceTotalMem and NVML total
  std::uint64_t reserved_bytes;  // NVML v2 `reserved`: firmware and page tables, not to be had by anyone
  std::uint64_t context_bytes;  // taken by each context
  std::uint32_t sm_count;
  std::uint32_t cc_major, cc_minor;
  std::uint32_t sm_clock_mhz, memory_clock_mhz, power_limit_mw, memory_bus_bits, l2_bytes;
  std::uint64_t link_bytes_per_s;    // pinned copies, each direction
  std::uint32_t pcie_generation, pcie_width;
  std::uint32_t numa_node;
  std::uint32_t mig_capable, mig_enabled;
  std::uint32_t link_type[kMaxCards];  // to card i: 0 none, 1 PCIe same root, 2 PCIe bridge, 3 NVLink
};

// Costs of time and memory; defaults and their sources in node_description.cc.
struct Costs {
  std::uint64_t kernel_ns;            // a kernel without a stated duration
  std::uint64_t launch_queue_depth;   // 1,024: a launch beyond it blocks
  std::uint64_t context_slice_ns;     // time slice of one context when several have work
  std::uint64_t context_switch_ns;
  std::uint64_t event_record_ns;      // timed event on the stream
  std::uint64_t vmm_create_ns_per_block, vmm_map_ns_per_block, vmm_access_ns_per_block, vmm_unmap_ns_per_block;
  std::uint64_t pageable_permille;    // rate of pageable copies against pinned ones
  std::uint64_t host_ns_scale_permille;  // 0 = calls cost no simulated host time (default), 1000 = full
};

struct CardProcess {            // what one process has on one card; written by that process
  std::atomic<std::uint64_t> bytes;     // charged by the driver, whole blocks
  std::atomic<std::uint64_t> contexts;  // live contexts
  std::atomic<std::uint64_t> busy_ns;   // kernel time given so far
};

struct ProcessSlot {
  std::atomic<std::uint64_t> owner;  // 0 free, else start ticks << 22 | pid
  char command[16];
  CardProcess cards[kMaxCards];
};

// One engine's place on the time axis, shared by all processes of the card.
struct Engine {
  std::atomic<std::uint64_t> busy_until_ns;
  std::atomic<std::uint64_t> busy_ns_total;
  std::atomic<std::uint64_t> last_owner;   // process slot + 1 that ran last: a change costs a switch
};

struct CardState {
  pthread_mutex_t mutex;                // robust, process-shared
  std::atomic<std::uint64_t> used_bytes;
  Engine engines[kMaxEngines];
  // What NVML reports beyond figures that follow from the engines; set by `tessera-sim inject`.
  std::atomic<std::uint32_t> temperature_c, power_mw, sm_clock_mhz, throttle_reasons;
  std::atomic<std::uint64_t> ecc_corrected, ecc_uncorrected;
  std::atomic<std::uint64_t> xid_sequence, xid_last;  // NVML event waiters watch the sequence
  std::atomic<std::uint32_t> lost;      // fallen off the bus: NVML GPU_IS_LOST, CUDA DEVICE_UNAVAILABLE
};

// Makes calls of one entry point fail: matched by name (or prefix*), card (-1 any), after `skip` calls, `count` times
// (0 = for ever); `permille` of matching calls, drawn from the node's seed; may add a delay instead of or beside an error.
struct Fault {
  std::atomic<std::uint32_t> active;
  char call[64];
  std::int32_t card;
  std::int32_t result;               // CUresult or nvmlReturn_t; 0 = only the delay
  std::uint64_t delay_ns;
  std::uint32_t permille;
  std::atomic<std::uint64_t> skip, count, hits;
};

struct NodeState {
  std::uint64_t magic;
  std::uint32_t layout, bytes;
  std::uint32_t driver_version_cuda;  // 13000
  char driver_version[32];            // "580.95.05"
  std::uint64_t seed;
  std::uint32_t card_count;
  std::uint32_t memory_limits_supported;  // R615+: NVML memory limits per cgroup
  Costs costs;
  CardSpec specs[kMaxCards];
  CardState cards[kMaxCards];
  std::atomic<std::uint32_t> fault_count;
  Fault faults[kMaxFaults];
  std::atomic<std::uint64_t> random_state;
  std::uint8_t reserved[4096];
  ProcessSlot processes[kMaxProcesses];
};

// The node of this process; maps it on first use. nullptr if there is none (cuInit then says NO_DEVICE,
// NVML DRIVER_NOT_LOADED) or it is not a node of this layout.
NodeState* AttachNode();

// This process' slot, claimed on first use (again after fork). -1 when every slot is taken.
int OwnProcess();
void ForgetProcessAfterFork();

// Takes or gives back whole blocks on a card for this process. Charge refuses, changing nothing, when the card has not
// that much left even after dead processes are taken out.
bool ChargeCard(int card, std::uint64_t bytes);
void UnchargeCard(int card, std::uint64_t bytes);

// Bytes not used by anybody, dead processes taken out first.
std::uint64_t FreeBytes(int card);

// Takes out slots whose process is gone. Cheap when nobody died.
void SweepDeadProcesses();

// True when the process of `slot` lives (pid and start time agree, not a zombie).
bool ProcessAlive(const ProcessSlot& slot);

// Puts `duration_ns` of work of this process on an engine, not before `earliest_ns`; answers when it ends.
// Takes time slices and switches between processes into account.
std::uint64_t SubmitWork(int card, int engine, std::uint64_t earliest_ns, std::uint64_t duration_ns);

std::uint64_t NowNs();
void SleepUntil(std::uint64_t when_ns);

// The result that a fault injected on `call` wants (0 = none), delays served. Costs one load when no fault is set.
int InjectedFault(std::string_view call, int card);

}  // namespace tessera::sim
