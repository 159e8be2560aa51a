#include "memory/graphs.h"

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

constexpr int kDevices = 64;
constexpr std::size_t kMostNodes = 1 << 20;

Measured g_charge[kDevices];
SpinLock g_lock;
FlatMap<GraphNeed> g_execs;
std::uint32_t g_seen = 0;     // atomic
std::uint64_t g_devices = 0;  // atomic; bit per device with graph memory

void Reset() {
  for (Measured& m : g_charge) m = Measured();
  g_lock = SpinLock();
  g_execs.Reset();
  g_seen = 0;
  g_devices = 0;
}

bool Attribute(CUdevice device, CUgraphMem_attribute attribute, std::uint64_t* bytes) {
  cuuint64_t value = 0;
  if (real::cuDeviceGetGraphMemAttribute(device, attribute, &value) != CUDA_SUCCESS) return false;
  *bytes = value;
  return true;
}

// Adds up one graph; child graphs cannot hold memory nodes before CUDA 12.9, later ones are
// followed.
void AddUp(CUgraph graph, GraphNeed* need, std::uint64_t* running, int depth) {
  std::size_t count = 0;
  if (depth > 8 || real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0 ||
      count > kMostNodes)
    return;
  const std::size_t bytes = count * sizeof(CUgraphNode);
  auto* nodes = static_cast<CUgraphNode*>(os::MapPrivate(bytes));
  if (nodes == nullptr) return;
  if (real::cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
    FlatMap<std::uint64_t> live;
    for (std::size_t i = 0; i < count; ++i) {
      CUgraphNodeType type;
      if (real::cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) continue;
      if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        if (real::cuGraphMemAllocNodeGetParams(nodes[i], &params) != CUDA_SUCCESS) continue;
        if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
        const std::uint64_t size = RoundToBlocks(params.bytesize);
        need->device = params.poolProps.location.id;
        need->sum += size;
        *running += size;
        if (*running > need->peak) need->peak = *running;
        live.Insert(params.dptr, size);
      } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        CUdeviceptr pointer = 0;
        if (real::cuGraphMemFreeNodeGetParams(nodes[i], &pointer) != CUDA_SUCCESS) continue;
        if (const std::uint64_t* size = live.Find(pointer); size != nullptr) {
          *running -= *size;
          live.Erase(pointer);
        }
      } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUgraph child = nullptr;
        if (real::cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
          AddUp(child, need, running, depth + 1);
      }
    }
    live.Reset();
  }
  os::Unmap(nodes, bytes);
}

}  // namespace

GraphNeed NeedOf(CUgraph graph) {
  GraphNeed need;
  std::uint64_t running = 0;
  AddUp(graph, &need, &running, 0);
  return need;
}

void NoteExec(CUgraphExec exec, const GraphNeed& need) {
  if (need.sum == 0 || need.device < 0 || need.device >= kDevices) return;
  ResetOnFork(Reset);
  __atomic_fetch_or(&g_devices, std::uint64_t{1} << need.device, __ATOMIC_RELAXED);
  if (g_lock.Lock()) {
    g_execs.Insert(reinterpret_cast<std::uint64_t>(exec), need);
    g_lock.Unlock();
  }
  std::atomic_ref(g_seen).store(1);
  std::atomic_ref(detail::g_launch_word).store(&kAsk);
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
  g_execs.Erase(reinterpret_cast<std::uint64_t>(exec));
  g_lock.Unlock();
}

bool GraphMemorySeen() { return __atomic_load_n(&g_seen, __ATOMIC_RELAXED) != 0; }

bool FindExec(CUgraphExec exec, GraphNeed* need) {
  if (!GraphMemorySeen() || !g_lock.Lock()) return false;
  const GraphNeed* found = g_execs.Find(reinterpret_cast<std::uint64_t>(exec));
  if (found != nullptr) *need = *found;
  g_lock.Unlock();
  return found != nullptr;
}

void SettleGraphs(CUdevice device) {
  if (device < 0 || device >= kDevices ||
      (__atomic_load_n(&g_devices, __ATOMIC_RELAXED) >> device & 1) == 0)
    return;
  const std::uint64_t number = g_charge[device].TakeNumber();
  std::uint64_t reserved = 0;
  if (!Attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved)) reserved = 0;
  g_charge[device].FollowAlways(CardOfDevice(device), Kind::kGraph, number, reserved);
}

void SettleAllGraphs() {
  for (int device = 0; device < kDevices; ++device) SettleGraphs(device);
}

bool GraphsAgree() {
  for (int device = 0; device < kDevices; ++device) {
    if ((__atomic_load_n(&g_devices, __ATOMIC_RELAXED) >> device & 1) == 0) continue;
    std::uint64_t reserved = 0;
    if (Attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
        reserved != g_charge[device].charged())
      return false;
  }
  return true;
}

bool detail::PrepareGraph(const GraphNeed& need, std::uint64_t* reserved) {
  const int card = CardOfDevice(need.device);
  if (card == kUnknownCard) return true;
  if (card == kForeignCard) return false;
  std::uint64_t has = 0, uses = 0, idle = 0;
  if (Attribute(need.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &has) &&
      Attribute(need.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &uses) && has > uses) {
    idle = has - uses;
  }
  for (const std::uint64_t bytes : {need.sum, need.peak}) {
    const std::uint64_t grows = bytes > idle ? bytes - idle : 0;
    if (grows == 0) return true;
    if (Reserve(card, Kind::kGraph, grows)) {
      *reserved = grows;
      return true;
    }
  }
  return false;
}

void detail::FinishGraph(const GraphNeed& need, std::uint64_t reserved) {
  const int card = CardOfDevice(need.device);
  if (card < 0) return;
  SettleGraphs(need.device);
  Refund(card, Kind::kGraph, reserved);
}

CUresult detail::RefuseGraph(const GraphNeed& need) {
  return Refuse(CardOfDevice(need.device), need.peak);
}

}  // namespace tessera::fence
