#include "memory/driver_figure.h"

#include "charge/charge.h"
#include "entry/driver.h"
#include "os/os.h"
#include "real.h"
#include "slice/text.h"

namespace tessera::fence {
namespace {

// PROC_PID_INIT_INO: pids here are those that the driver knows
constexpr std::uint64_t kInitialPidNamespace = 0xEFFFFFFC;
constexpr unsigned kFirstRoom = 512;
constexpr unsigned kMostRoom = 1u << 15;

enum State : std::uint32_t { kNotTried, kOpen, kAbsent };
std::uint32_t g_opened = kNotTried;  // atomic; what came of loading NVML here
std::uint32_t g_answered = 0;        // atomic; it has given a figure
std::uint8_t g_seen_on[contract::kMaxCards] =
    {};  // atomic; the driver's list has shown this process

// "GPU-8-4-4-4-12" or "MIG-...", as NVML names cards.
void UuidText(const contract::PolicyCard& card, char* buffer, std::size_t bytes) {
  Text text(buffer, bytes);
  text << ((card.flags & contract::kCardIsMig) != 0 ? "MIG-" : "GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text << "-";
    const char pair[2] = {"0123456789abcdef"[card.uuid[i] >> 4],
                          "0123456789abcdef"[card.uuid[i] & 15]};
    text << std::string_view(pair, 2);
  }
}

unsigned DriverPid() {
  const contract::LedgerSlot* slot = OwnSlotOrNull();
  if (slot == nullptr) return 0;
  if (const std::uint32_t pid = contract::Load(slot->host_pid); pid != 0) return pid;
  if (contract::Load(slot->pid_namespace) != kInitialPidNamespace) return 0;
  return static_cast<unsigned>(os::ProcessId());
}

// The process' line in the driver's list. 1 found, 0 not in the list, -1 no list.
int LookUp(nvmlDevice_t device, unsigned pid, std::uint64_t* bytes) {
  for (unsigned room = kFirstRoom; room <= kMostRoom; room *= 4) {
    const std::size_t size = room * sizeof(nvmlProcessInfo_t);
    auto* processes = static_cast<nvmlProcessInfo_t*>(os::MapPrivate(size));
    if (processes == nullptr) return -1;
    unsigned count = room;
    const nvmlReturn_t result =
        real::nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);
    int found = result == NVML_SUCCESS ? 0 : -1;
    for (unsigned i = 0; result == NVML_SUCCESS && i < count && i < room; ++i) {
      // NVML_VALUE_NOT_AVAILABLE is larger than any figure.
      if (processes[i].pid != pid || processes[i].usedGpuMemory > contract::kMaxBytes) continue;
      *bytes = processes[i].usedGpuMemory;
      found = 1;
    }
    os::Unmap(processes, size);
    if (result != NVML_ERROR_INSUFFICIENT_SIZE) return found;
  }
  return -1;
}

bool AskDriver(int card, unsigned pid, std::uint64_t* bytes) {
  char uuid[64];
  UuidText(TheSlice().policy.Card(static_cast<std::uint32_t>(card)), uuid, sizeof uuid);
  nvmlDevice_t device;
  if (real::nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS) return false;
  const int found = LookUp(device, pid, bytes);
  std::uint8_t& seen = g_seen_on[card];
  if (found > 0) __atomic_store_n(&seen, std::uint8_t{1}, __ATOMIC_RELAXED);
  if (found != 0) return found > 0;
  // Gone from a list that it was in: its last context is gone, and everything with it.
  *bytes = 0;
  return __atomic_load_n(&seen, __ATOMIC_RELAXED) != 0;
}

// NVML stays initialised where it was loaded here: its first initialisation is what costs.
bool Open() {
  const std::uint32_t state = __atomic_load_n(&g_opened, __ATOMIC_ACQUIRE);
  if (state != kNotTried) return state == kOpen;
  const bool open = LoadNvml() && real::nvmlInit_v2() == NVML_SUCCESS;
  __atomic_store_n(&g_opened, open ? kOpen : kAbsent, __ATOMIC_RELEASE);
  return open;
}

}  // namespace

bool OwnDriverBytes(int card, Nvml how, std::uint64_t* bytes) {
  if (card < 0 || TheSlice().from_environment) return false;
  const unsigned pid = DriverPid();
  if (pid == 0) return false;
  bool found = false;
  if (how == Nvml::kLoad ? Open() : __atomic_load_n(&g_opened, __ATOMIC_ACQUIRE) == kOpen) {
    found = AskDriver(card, pid, bytes);
  } else if (real::nvmlInit_v2() == NVML_SUCCESS) {  // says at once when nobody has loaded it
    found = AskDriver(card, pid, bytes);
    real::nvmlShutdown();
  }
  __atomic_store_n(&g_answered, found ? 1u : 0u, __ATOMIC_RELEASE);
  return found;
}

bool DriverFigureIsAtHand() { return __atomic_load_n(&g_answered, __ATOMIC_ACQUIRE) != 0; }

void ForgetDriverFigure() {
  g_opened = kNotTried;
  g_answered = 0;
  for (std::uint8_t& seen : g_seen_on) seen = 0;
}

}  // namespace tessera::fence
