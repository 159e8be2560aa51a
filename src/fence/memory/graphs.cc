#include "memory/graphs.h"

#include "charge/charge.h"
#include "compute/gate.h"
#include "memory/flat_map.h"
#include "memory/live.h"
#include "memory/measured.h"
#include "memory/spin_lock.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kAsk = 1;  // not 0: every launch looks

}  // namespace

constinit const std::uint32_t* detail::g_launch_word = &kAsk;

namespace {

struct Exec {
  GraphNeed need;
  std::uint64_t launched = 0;  // the epoch of its last launch, 0 = none
};

Measured g_charge[kGraphDevices];
SpinLock g_lock;
FlatMap<Exec> g_execs;
std::uint64_t g_epoch = 1;                // counts trims that took something
std::uint64_t g_launched[kGraphDevices];  // what the graphs launched in this epoch need
std::uint32_t g_seen = 0;                 // atomic
std::uint64_t g_devices = 0;              // atomic; bit per device with graph memory
std::uint64_t g_over = 0;                 // atomic; bit per device where graphs took too much

constexpr std::uint64_t Bit(int device) { return std::uint64_t{1} << device; }

void Reset() {
  for (Measured& m : g_charge) m = Measured();
  g_lock = SpinLock();
  g_execs.Reset();
  g_epoch = 1;
  for (std::uint64_t& bytes : g_launched) bytes = 0;
  g_seen = 0;
  g_devices = 0;
  g_over = 0;
}

// Calls visit(device, bytes) for each device of a graph until it returns false.
template <typename Visit>
bool ForEach(const GraphNeed& need, Visit&& visit) {
  for (std::uint64_t left = need.devices; left != 0; left &= left - 1) {
    const int device = __builtin_ctzll(left);
    if (!visit(device, need.bytes[device])) return false;
  }
  return true;
}

bool HasGraphs(CUdevice device) {
  return device >= 0 && device < kGraphDevices &&
         (__atomic_load_n(&g_devices, __ATOMIC_RELAXED) & Bit(device)) != 0;
}

std::uint64_t Attribute(CUdevice device, CUgraphMem_attribute attribute) {
  cuuint64_t value = 0;
  return real::cuDeviceGetGraphMemAttribute(device, attribute, &value) == CUDA_SUCCESS ? value : 0;
}
std::uint64_t ReservedNow(CUdevice device) {
  return Attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

CUresult Trim(CUdevice device) {
  const std::uint64_t before = ReservedNow(device);
  const CUresult result = real::cuDeviceGraphMemTrim(device);
  // Each graph that was launched may have lost something.
  if (ReservedNow(device) < before && g_lock.Lock()) {
    ++g_epoch;
    for (std::uint64_t& bytes : g_launched) bytes = 0;
    g_lock.Unlock();
  }
  return result;
}

// The end of a call that has promised `promised` bytes. Graphs that took what nobody has granted
// give back what they hold in vain; where that is not enough, no more of them are launched.
void Settle(CUdevice device, std::uint64_t promised) {
  const int card = CardOfDevice(device);
  if (card < 0) return;
  Measured& charge = g_charge[device];
  std::uint64_t number = charge.TakeNumber();
  if (charge.Follow(card, Kind::kGraph, number, ReservedNow(device), promised)) return;
  Trim(device);
  number = charge.TakeNumber();
  charge.FollowAlways(card, Kind::kGraph, number, ReservedNow(device));
  if (const Figures now = CardFiguresNow(card); now.used > now.limit)
    __atomic_fetch_or(&g_over, Bit(device), __ATOMIC_ACQ_REL);
}

// Whether graphs of the device still hold more than they were granted.
bool StillOver(CUdevice device, int card) {
  if ((__atomic_load_n(&g_over, __ATOMIC_ACQUIRE) & Bit(device)) == 0) return false;
  TrimGraphs(device);
  if (const Figures now = CardFiguresNow(card); now.used > now.limit) return true;
  __atomic_fetch_and(&g_over, ~Bit(device), __ATOMIC_ACQ_REL);
  return false;
}

// What a launch on the device may add to what its graphs have reserved.
std::uint64_t Growth(CUdevice device, std::uint64_t bytes, bool launched) {
  if (!launched) return bytes;  // whether it finds what others hold in vain only the driver knows
  const std::uint64_t has = ReservedNow(device);
  const std::uint64_t uses = Attribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  const std::uint64_t idle = has > uses ? has - uses : 0;
  if (bytes <= idle) return 0;
  if (g_lock.Lock()) {
    const bool all = has >= g_launched[device];  // each graph has its own, in use or not
    g_lock.Unlock();
    if (all) return 0;
  }
  return bytes - idle;
}

// False when the memory cannot be granted; otherwise *reserved is charged.
bool ReserveOn(CUdevice device, int card, std::uint64_t bytes, bool launched,
               std::uint64_t* reserved) {
  if (card == kUnknownCard) return true;
  if (card == kForeignCard || StillOver(device, card)) return false;
  *reserved = Growth(device, bytes, launched);
  if (*reserved == 0 || Reserve(card, Kind::kGraph, *reserved)) return true;
  *reserved = 0;
  if (bytes > detail::Limit(card)) return false;
  TrimGraphs(device);
  if (!Reserve(card, Kind::kGraph, bytes)) return false;
  *reserved = bytes;
  return true;
}

}  // namespace

bool NoteExec(CUgraphExec exec, const GraphExec& noted) {
  bool done = false;
  if (g_lock.Lock()) {
    done = g_execs.Insert(reinterpret_cast<std::uint64_t>(exec), {noted.need, 0}) != nullptr;
    g_lock.Unlock();
  }
  if (noted.launched) detail::MarkLaunched(exec);
  std::atomic_ref(g_seen).store(1);
  std::atomic_ref(detail::g_launch_word).store(&kAsk);
  return done;
}

// Whichever of this and NoteExec comes last, launches are not free once a graph has memory.
void FreeLaunches() {
  if (GraphMemorySeen()) return;
  std::atomic_ref word(detail::g_launch_word);
  word.store(std::atomic_ref(tessera_gate_word).load(std::memory_order_relaxed));
  if (std::atomic_ref(g_seen).load() != 0) word.store(&kAsk);
}

void ForgetExec(CUgraphExec exec) {
  if (!GraphMemorySeen() || !g_lock.Lock()) return;
  const auto key = reinterpret_cast<std::uint64_t>(exec);
  if (const Exec* found = g_execs.Find(key); found != nullptr) {
    if (found->launched == g_epoch) {
      ForEach(found->need, [](int device, std::uint64_t bytes) {
        g_launched[device] -= bytes;
        return true;
      });
    }
    g_execs.Erase(key);
  }
  g_lock.Unlock();
}

bool GraphMemorySeen() { return __atomic_load_n(&g_seen, __ATOMIC_RELAXED) != 0; }

GraphExec FindExec(CUgraphExec exec) {
  GraphExec answer;
  if (!GraphMemorySeen() || !g_lock.Lock()) return answer;
  if (const Exec* found = g_execs.Find(reinterpret_cast<std::uint64_t>(exec)); found != nullptr)
    answer = {true, found->launched == g_epoch, found->need};
  g_lock.Unlock();
  return answer;
}

void SettleGraphs(CUdevice device) {
  if (HasGraphs(device)) Settle(device, 0);
}

void SettleAllGraphs() {
  for (int device = 0; device < kGraphDevices; ++device) SettleGraphs(device);
}

CUresult TrimGraphs(CUdevice device) {
  const CUresult result = Trim(device);
  if (HasGraphs(device)) {
    const std::uint64_t number = g_charge[device].TakeNumber();
    g_charge[device].FollowAlways(CardOfDevice(device), Kind::kGraph, number, ReservedNow(device));
  }
  return result;
}

bool GraphsAgree() {
  for (int device = 0; device < kGraphDevices; ++device) {
    if (HasGraphs(device) && ReservedNow(device) != g_charge[device].charged()) return false;
  }
  return true;
}

void detail::MarkLaunched(CUgraphExec exec) {
  if (!g_lock.Lock()) return;
  Exec* found = g_execs.Find(reinterpret_cast<std::uint64_t>(exec));
  if (found != nullptr && found->launched != g_epoch) {
    found->launched = g_epoch;
    ForEach(found->need, [](int device, std::uint64_t bytes) {
      g_launched[device] += bytes;
      return true;
    });
  }
  g_lock.Unlock();
}

detail::GraphReservation detail::PrepareGraph(const GraphNeed& need, bool launched) {
  GraphReservation reserved;
  ResetOnFork(Reset);
  __atomic_fetch_or(&g_devices, need.devices, __ATOMIC_RELAXED);
  if (need.unknown) return reserved;
  std::uint64_t done = 0;
  reserved.granted = ForEach(need, [&](int device, std::uint64_t bytes) {
    const int card = CardOfDevice(device);
    if (!ReserveOn(device, card, bytes, launched, &reserved.bytes[device])) {
      reserved.refused_card = card;
      reserved.refused_bytes = bytes;
      return false;
    }
    g_charge[device].Promise(reserved.bytes[device]);
    done |= Bit(device);
    return true;
  });
  if (reserved.granted) return reserved;
  for (std::uint64_t left = done; left != 0; left &= left - 1) {
    const int device = __builtin_ctzll(left);
    g_charge[device].Withdraw(CardOfDevice(device), Kind::kGraph, reserved.bytes[device]);
  }
  return reserved;
}

void detail::FinishGraph(const GraphNeed& need, const GraphReservation& reserved) {
  ForEach(need, [&](int device, std::uint64_t) {
    Settle(device, reserved.bytes[device]);
    return true;
  });
}

CUresult detail::RefuseGraph(const GraphReservation& reserved) {
  return Refuse(reserved.refused_card, reserved.refused_bytes);
}

}  // namespace tessera::fence
