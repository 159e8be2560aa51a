#include "memory/own_usage.h"

#include "charge/charge.h"
#include "os/os.h"
#include "real.h"
#include "slice/text.h"

namespace tessera::fence {
namespace {

constexpr std::uint64_t kInitialPidNamespace =
    0xEFFFFFFC;  // PROC_PID_INIT_INO: pids here are those that the driver knows
constexpr unsigned kMostProcesses = 512;
// Contexts of today's cards take 100 to 600 MiB; more is not believed.
constexpr std::uint64_t kMostOfOneContext = std::uint64_t{4} << 30;

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

bool AskDriver(int card, unsigned pid, std::uint64_t* bytes) {
  char uuid[64];
  UuidText(TheSlice().policy.Card(static_cast<std::uint32_t>(card)), uuid, sizeof uuid);
  nvmlDevice_t device;
  if (real::nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS) return false;
  auto* processes =
      static_cast<nvmlProcessInfo_t*>(os::MapPrivate(kMostProcesses * sizeof(nvmlProcessInfo_t)));
  if (processes == nullptr) return false;
  unsigned count = kMostProcesses;
  bool found = false;
  if (real::nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes) == NVML_SUCCESS) {
    for (unsigned i = 0; i < count && i < kMostProcesses; ++i) {
      if (processes[i].pid != pid || processes[i].usedGpuMemory > contract::kMaxBytes) continue;
      *bytes = processes[i].usedGpuMemory;
      found = true;
    }
  }
  os::Unmap(processes, kMostProcesses * sizeof(nvmlProcessInfo_t));
  return found;
}

}  // namespace

bool OwnDriverBytes(int card, std::uint64_t* bytes) {
  if (card < 0 || TheSlice().from_environment) return false;
  const unsigned pid = DriverPid();
  // Answers "not loaded" at once where the program does not use NVML: the fence loads no library.
  if (pid == 0 || real::nvmlInit_v2() != NVML_SUCCESS) return false;
  const bool found = AskDriver(card, pid, bytes);
  real::nvmlShutdown();
  return found;
}

namespace {

std::uint64_t ChargedBytes(int card) {
  std::uint64_t sum = 0;
  for (std::uint32_t k = 0; k < contract::kKinds; ++k) sum += OwnBytes(card, static_cast<Kind>(k));
  return sum;
}

}  // namespace

bool UnchargedBytes(int card, std::uint64_t* bytes) {
  std::uint64_t driver = 0;
  if (!OwnDriverBytes(card, &driver)) return false;
  const std::uint64_t known = ChargedBytes(card);
  *bytes = driver > known ? driver - known : 0;
  return true;
}

bool SettleByDriver(int card, std::uint32_t record) {
  std::uint64_t driver = 0;
  if (record == 0 || !OwnDriverBytes(card, &driver)) return false;
  const std::uint64_t known = ChargedBytes(card);
  if (driver > known) {
    ChargeTaken(card, Kind::kContext, driver - known);
    AddContextBytes(record, driver - known);
  } else if (known > driver) {
    // Less may also mean that another thread has reserved what the driver is about to give: the
    // context itself stays charged.
    const std::uint64_t has = ContextBytes(record), floor = ExpectedContextBytes(card),
                        above = has > floor ? has - floor : 0;
    Refund(card, Kind::kContext,
           TakeContextBytes(record, known - driver < above ? known - driver : above));
  }
  return true;
}

std::uint64_t ExpectedContextBytes(int card) {
  if (card < 0) return 0;
  const auto index = static_cast<std::uint32_t>(card);
  std::uint64_t bytes = TheSlice().policy.Card(index).context_bytes;
  if (bytes == 0) bytes = contract::Load(TheSlice().ledger.Card(index).context_bytes);
  return bytes <= kMostOfOneContext ? bytes : 0;
}

void RememberContextBytes(int card, std::uint64_t bytes) {
  if (card < 0 || bytes == 0 || bytes > kMostOfOneContext) return;
  contract::Store(TheSlice().ledger.Card(static_cast<std::uint32_t>(card)).context_bytes, bytes);
}

std::uint64_t ProbeContextBytes(CUcontext context, CUdevice device) {
  CUcontext former = nullptr;
  if (real::cuCtxGetCurrent(&former) != CUDA_SUCCESS ||
      real::cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 0;
  std::uint64_t bytes = 0;
  const Growth growth({CardOfDevice(device), 0, device});
  CUcontext probe = nullptr;
  CUresult made = real::cuCtxCreate_v2(&probe, 0, device);
  if (made == CUDA_ERROR_NOT_SUPPORTED) made = real::cuCtxCreate_v4(&probe, nullptr, 0, device);
  if (made == CUDA_SUCCESS) {
    bytes = growth.Measure(kMostOfOneContext);
    real::cuCtxDestroy_v2(probe);
    // The card must be as before: otherwise a neighbour moved, and the figure is its doing.
    if (!growth.Unchanged()) bytes = 0;
  }
  real::cuCtxSetCurrent(former);
  return bytes;
}

Growth::Growth(const Place& place) : place_(place) {
  if (place.card < 0) return;
  std::uint64_t again = 0;
  slice_word_ =
      contract::Load(TheSlice().ledger.Card(static_cast<std::uint32_t>(place.card)).total);
  usable_ = Free(&free_) && Free(&again) && free_ == again;
}

bool Growth::Free(std::uint64_t* bytes) const {
  std::size_t free = 0, total = 0;
  if (real::cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
  *bytes = free;
  return true;
}

bool Growth::Unchanged() const {
  std::uint64_t now = 0;
  return usable_ && Free(&now) && now == free_;
}

std::uint64_t Growth::Measure(std::uint64_t most) const {
  std::uint64_t now = 0, again = 0;
  if (!usable_ || !Free(&now) || !Free(&again) || now != again || now >= free_) return 0;
  // Another thread or process of this slice allocated meanwhile.
  if (contract::Load(TheSlice().ledger.Card(static_cast<std::uint32_t>(place_.card)).total) !=
      slice_word_)
    return 0;
  const std::uint64_t grown = free_ - now;
  return grown <= most ? grown : 0;
}

}  // namespace tessera::fence
