// The simulated node: one shared mapping that every process with the simulated driver sees.
//
// `tessera-sim` writes the description once (from YAML); libcuda.so.1 and libnvidia-ml.so.1 map the
// same file and keep there what the cards hold and do. Whatever happens to a user, SIGKILL and
// SIGSTOP included, the next caller finds a state that it can use: there is no lock in it.
//
// Thread safety: every function may be called from any thread of any process.
// Invariants:
//   1. A card's used bytes = sum over process slots of `held`; a dead process' slot (pid and start
//      time) is taken out by whoever next needs memory or asks for figures. The cached sum in
//      `used` may be too high for a moment after a SIGKILL in the middle of a charge, never too
//      low.
//   2. Nothing but fixed-size plain data and no pointers; everything zero is a valid "nothing
//      here".
//   3. Units: bytes, nanoseconds of CLOCK_MONOTONIC, MiB only where the name says so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "sim/state/timeline.h"

namespace tessera::sim {

inline constexpr std::uint64_t kNodeMagic = 0x3145444f4e4d4953;  // "SIMNODE1"
inline constexpr std::uint32_t kNodeLayout = 3;
inline constexpr int kMaxCards = 16;
inline constexpr int kMaxProcesses =
    4608;  // more than one slice may have, so that exhaustion is the fence's
inline constexpr int kMaxFaults = 64;
inline constexpr int kMaxEngines = 3;  // compute, copy to card, copy from card
inline constexpr int kMaxMigDevices = 7;
inline constexpr int kMaxMemoryLimits = 64;
inline constexpr int kMaxXids = 64;

// Where the driver libraries look for the node: this variable, else kDefaultNodePath.
inline constexpr char kEnvNodePath[] = "TESSERA_SIM_NODE";
inline constexpr char kDefaultNodePath[] = "/run/tessera-sim/node";

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;  // driver's allocation block
inline constexpr std::uint64_t kNoMemoryLimit = ~std::uint64_t{0};

// One MIG device (a compute instance of a GPU instance), as the node describes it.
struct MigSpec {
  std::uint8_t uuid[16];
  char profile[24];  // "1g.10gb"
  std::uint32_t gpu_instance, compute_instance;
  std::uint32_t gpu_slices, compute_slices, sm_count;
  std::uint64_t memory_bytes;
};

// What the card is: written by tessera-sim, read-only afterwards. Sources of each preset stand in
// nodes/*.yaml.
struct CardSpec {
  char name[96];    // as cuDeviceGetName, "NVIDIA A10G"
  char brand[24];   // "NVIDIA", "Tesla", "GeForce"
  char serial[24];  // empty = the card has none
  std::uint8_t uuid[16];
  std::uint32_t pci_domain, pci_bus, pci_device;
  std::uint32_t pci_device_id, pci_subsystem_id;
  std::uint64_t memory_bytes;  // as cuDeviceTotalMem and NVML total
  std::uint64_t
      reserved_bytes;  // NVML v2 `reserved`: firmware and page tables, not to be had by anyone
  std::uint64_t context_bytes;  // taken by each context
  std::uint64_t bar1_bytes;
  std::uint32_t sm_count, cores_per_sm;
  std::uint32_t cc_major, cc_minor;
  std::uint32_t sm_clock_mhz, memory_clock_mhz, power_limit_mw, idle_power_mw, memory_bus_bits,
      l2_bytes;
  std::uint32_t fan_count, ecc_supported;
  std::uint64_t link_bytes_per_s;  // pinned copies, each direction
  std::uint32_t pcie_generation, pcie_width;
  std::uint32_t numa_node;
  std::uint32_t mig_capable, mig_enabled;
  std::uint32_t mig_count;
  MigSpec mig[kMaxMigDevices];
  std::uint32_t
      link_type[kMaxCards];    // to card i: 0 none, 1 PCIe same root, 2 PCIe bridge, 3 NVLink
  std::uint32_t nvlink_count;  // NVLinks of this card, to all peers together
};

// Costs of time and memory; defaults and their sources in default_node.cc.
struct Costs {
  std::uint64_t kernel_ns;           // a kernel without a stated duration
  std::uint64_t launch_queue_depth;  // a launch beyond it blocks
  std::uint64_t context_slice_ns;    // time slice of one context when several have work
  std::uint64_t context_switch_ns;
  std::uint64_t event_record_ns;  // timed event on the stream
  std::uint64_t vmm_create_ns_per_block, vmm_map_ns_per_block, vmm_access_ns_per_block,
      vmm_unmap_ns_per_block;
  std::uint64_t pageable_permille;  // rate of pageable copies against pinned ones
  std::uint64_t
      host_ns_scale_permille;  // 0 = calls cost no simulated host time (default), 1000 = full
};

// What a node is before anything runs on it.
struct NodeDescription {
  std::uint32_t driver_version_cuda;  // 13000
  char driver_version[32];            // "580.95.05"
  std::uint64_t seed;
  std::uint32_t memory_limits_supported;  // R615+: NVML memory limits per cgroup
  std::uint32_t card_count;
  Costs costs;
  CardSpec specs[kMaxCards];
};

struct CardProcess {  // what one process has on one card; written by that process
  std::atomic<std::uint64_t>
      held;  // bytes (whole blocks) | charges under way in the low 16 bits: see HeldBytes()
  std::atomic<std::uint64_t> contexts;  // live contexts
  std::atomic<std::uint64_t> busy_ns;   // kernel time given so far
  std::atomic<std::uint64_t> mig;       // 1 + index of the MIG device it is on, 0 the whole card
};

inline std::uint64_t HeldBytes(const CardProcess& on_card) {
  return on_card.held.load(std::memory_order_acquire) & ~(kBlockBytes - 1);
}

struct ProcessSlot {
  std::atomic<std::uint64_t>
      owner;  // 0 free, else start ticks << 22 | pid; top bit: being taken out by that process
  std::atomic<std::uint64_t> image;  // bottom of the program's stack: another one after exec
  std::atomic<std::uint64_t> pid_namespace;  // inode; `owner`'s pid counts there
  std::atomic<std::uint64_t> started_ns;     // when the slot was claimed
  char command[16];
  char cgroup[256];  // as /proc/PID/cgroup said when the process last took memory
  CardProcess cards[kMaxCards];
};

// One sixth of a second on a card (kUtilWindowNs), as NVML samples it: one busy share and the one
// process that had the engine at the end of the window.
struct UtilSample {
  std::atomic<std::uint64_t> window;   // start / kUtilWindowNs
  std::atomic<std::uint64_t> busy_ns;  // of the window
  std::atomic<std::uint64_t> owner;    // ProcessSlot::owner, 0 nobody
};

struct Xid {
  std::atomic<std::uint64_t> code;  // 0 none
  std::atomic<std::uint64_t> when_ns;
};

struct CardState {
  std::atomic<std::uint64_t> used;  // blocks << 40 | version: see UsedBytes()
  std::atomic<std::uint64_t> recount_wanted;
  EngineState engines[kMaxEngines];
  UtilSample samples[kMaxEngines][kUtilSamples];
  // What NVML reports beyond figures that follow from the engines; set by `tessera-sim inject`, 0 =
  // follows from load.
  std::atomic<std::uint32_t> temperature_c, power_mw, sm_clock_mhz;
  std::atomic<std::uint64_t> throttle_reasons;  // nvmlClocksEventReason* bits
  std::atomic<std::uint64_t> ecc_corrected, ecc_uncorrected;
  std::atomic<std::uint64_t>
      xid_sequence;  // NVML event waiters watch it; xids[(sequence - 1) % kMaxXids] is the newest
  Xid xids[kMaxXids];
  std::atomic<std::uint32_t> lost;  // fallen off the bus: NVML GPU_IS_LOST, CUDA DEVICE_UNAVAILABLE
  std::atomic<std::uint32_t> persistence, compute_mode, recovery_action;
};

// Makes calls of one entry point fail: matched by name (or prefix*), card (-1 any), after `skip`
// calls, `count` times (0 = for ever); `permille` of matching calls, drawn from the node's seed;
// may add a delay instead of or beside an error.
struct Fault {
  std::atomic<std::uint32_t> active;  // 0 free, 1 in force, 2 being written
  char call[64];
  std::int32_t card;
  std::int32_t result;  // CUresult or nvmlReturn_t; 0 = only the delay
  std::uint64_t delay_ns;
  std::uint32_t permille;  // 1000 = every matching call
  std::atomic<std::uint64_t> skip, count, hits;
};

// The driver's own limit on what a cgroup and those below it hold (driver R615+).
struct MemoryLimit {
  std::atomic<std::uint32_t> state;  // 0 free, 1 in force, 2 being written
  char cgroup[256];
  std::atomic<std::uint64_t> soft[kMaxCards], hard[kMaxCards];  // bytes; kNoMemoryLimit = none
};

struct NodeState {
  std::uint64_t magic;
  std::uint32_t layout, bytes;
  std::uint32_t driver_version_cuda;  // 13000
  char driver_version[32];            // "580.95.05"
  std::uint64_t seed;
  std::uint32_t card_count;
  std::uint32_t memory_limits_supported;  // R615+: NVML memory limits per cgroup
  std::uint64_t pid_namespace;            // of the creator: it sees every process of the node
  Costs costs;
  CardSpec specs[kMaxCards];
  CardState cards[kMaxCards];
  std::atomic<std::uint32_t> fault_count;  // faults in force
  std::atomic<std::uint32_t> limit_count;  // memory limits in force
  Fault faults[kMaxFaults];
  MemoryLimit limits[kMaxMemoryLimits];
  std::atomic<std::uint64_t> random_state;
  std::atomic<std::uint64_t> slots_high;  // no slot at or above it was ever claimed
  std::atomic<std::uint64_t> last_sweep_ns, sweep_cost_ns;
  std::uint8_t reserved[4096];
  ProcessSlot processes[kMaxProcesses];
};

// A description with `card_count` A10G cards, default costs and driver; the base of every preset.
NodeDescription DefaultNode(int card_count);

// Writes a node file (mode 0666, complete or not at all). 0, or errno: EEXIST when there is a file
// already.
int CreateNode(const char* path, const NodeDescription& description);

// Maps a node file; nullptr with errno (EPROTO: not a node of this layout). The mapping is the
// caller's.
NodeState* MapNode(const char* path);

// The node of this process; maps it on first use. nullptr if there is none (cuInit then says
// NO_DEVICE, NVML DRIVER_NOT_LOADED) or it is not a node of this layout.
NodeState* AttachNode();
// Makes `node` the node of this process (tests and tessera-sim); nullptr = look again. Gives up the
// process slot.
void UseNode(NodeState* node);

// This process' slot, claimed on first use (again after fork). -1 when every slot is taken.
int OwnProcess();
void ForgetProcessAfterFork();

// Takes or gives back whole blocks on a card for this process (bytes are rounded up to blocks).
// Charge refuses, changing nothing, when the card or the MIG device that the process is on has not
// that much left even after dead processes are taken out, or a memory limit of this process' cgroup
// forbids it.
bool ChargeCard(int card, std::uint64_t bytes);
void UnchargeCard(int card, std::uint64_t bytes);

// Bytes not used by anybody / used by all processes, dead processes taken out first. What is free
// is free on the MIG device that this process is on, if it is on one.
std::uint64_t FreeBytes(int card);
std::uint64_t UsedBytes(int card);

// This process works on a MIG device of the card (its index in CardSpec::mig; -1: on the whole
// card) from now on. A process is on one at a time, as with the driver.
void UseMigDevice(int card, int index);
// Bytes used by the processes on a MIG device, dead ones taken out first; what it has in all.
std::uint64_t UsedOnMigDevice(int card, int index);
std::uint64_t MigCapacity(const MigSpec& spec);

// Takes out slots whose process is gone. Cheap when nobody died. A zombie is noticed within 5 ms of
// the last look.
void SweepDeadProcesses();

// True when the process of `slot` lives (pid and start time agree, not a zombie, same program
// image).
bool ProcessAlive(const ProcessSlot& slot);

// The pid of the slot's process as this process would call it; 0 when it can't see it.
pid_t VisiblePid(const ProcessSlot& slot);

// Puts `duration_ns` of work of this process on an engine, not before `earliest_ns`; answers when
// it ends. Takes time slices and switches between processes into account.
std::uint64_t SubmitWork(int card, int engine, std::uint64_t earliest_ns,
                         std::uint64_t duration_ns);

// The engine's time as it stands now, for figures: nothing is changed. `log` gets what was served
// and which windows ended since the last submission (may be nullptr); windows before that stand in
// CardState::samples.
Timeline PeekTimeline(const NodeState& node, int card, int engine, TimelineLog* log);
SliceCosts EngineCosts(const NodeState& node, int engine);

std::uint64_t NowNs();
void SleepUntil(std::uint64_t when_ns);

// The result that a fault injected on `call` wants (0 = none), delays served. Costs one load when
// no fault is set.
int InjectedFault(std::string_view call, int card);

// Puts a fault in force; -1 when all kMaxFaults are taken, else its index. ClearFaults takes all
// out.
int AddFault(std::string_view call, int card, int result, std::uint64_t delay_ns,
             std::uint32_t permille, std::uint64_t skip, std::uint64_t count);
void ClearFaults();

// Reports an XID on a card: event waiters wake within their poll period.
void RaiseXid(int card, std::uint64_t code);

// Memory limit of a cgroup (full path) on a card. Soft 0 and hard kNoMemoryLimit clear it. False:
// table full.
bool SetMemoryLimit(int card, std::string_view cgroup, std::uint64_t soft, std::uint64_t hard);
// The limit in force on exactly this cgroup; {0, kNoMemoryLimit} if none. `used` = bytes of it and
// all below it.
struct MemoryLimitView {
  std::uint64_t soft, hard, used;
};
MemoryLimitView GetMemoryLimit(int card, std::string_view cgroup);

}  // namespace tessera::sim
