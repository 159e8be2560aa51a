// Faults injected on calls, and XIDs.
#include <string.h>

#include <algorithm>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

bool Matches(std::string_view pattern, std::string_view call) {
  if (!pattern.empty() && pattern.back() == '*')
    return call.starts_with(std::string_view(pattern.data(), pattern.size() - 1));
  return pattern == call;
}

// splitmix64 (public domain, Steele, Lea, Flood 2014) over one shared counter: the same draws for
// the same seed.
std::uint64_t Draw(NodeState& node) {
  std::uint64_t z = node.random_state.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed) +
                    0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Takes one from `left`; false when there was none.
bool TakeOne(std::atomic<std::uint64_t>& left) {
  std::uint64_t value = left.load(std::memory_order_relaxed);
  while (value > 0) {
    if (left.compare_exchange_weak(value, value - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void Retire(NodeState& node, Fault& fault) {
  std::uint32_t in_force = 1;
  if (fault.active.compare_exchange_strong(in_force, 0))
    node.fault_count.fetch_sub(1, std::memory_order_release);
}

}  // namespace

int InjectedFault(std::string_view call, int card) {
  NodeState* node = AttachNode();
  if (node == nullptr || node->fault_count.load(std::memory_order_relaxed) == 0) return 0;
  for (Fault& fault : node->faults) {
    if (fault.active.load(std::memory_order_acquire) != 1) continue;
    if (fault.card != -1 && card != -1 && fault.card != card) continue;
    if (!Matches(Text(fault.call, sizeof fault.call), call)) continue;
    if (fault.permille < 1000 && Draw(*node) % 1000 >= fault.permille) continue;
    if (TakeOne(fault.skip)) continue;
    const std::uint64_t count = fault.count.load(std::memory_order_relaxed);
    const std::uint64_t before = fault.hits.fetch_add(1, std::memory_order_relaxed);
    if (count > 0 && before >= count) continue;
    const int result = fault.result;
    const std::uint64_t delay = fault.delay_ns;
    if (count > 0 && before + 1 == count) Retire(*node, fault);
    if (delay > 0) SleepUntil(NowNs() + delay);
    if (result != 0) return result;
  }
  return 0;
}

int AddFault(std::string_view call, int card, int result, std::uint64_t delay_ns,
             std::uint32_t permille, std::uint64_t skip, std::uint64_t count) {
  NodeState* node = AttachNode();
  if (node == nullptr) return -1;
  for (int i = 0; i < kMaxFaults; ++i) {
    Fault& fault = node->faults[i];
    std::uint32_t free = 0;
    if (!fault.active.compare_exchange_strong(free, 2)) continue;
    memset(fault.call, 0, sizeof fault.call);
    memcpy(fault.call, call.data(), std::min(call.size(), sizeof fault.call - 1));
    fault.card = card;
    fault.result = result;
    fault.delay_ns = delay_ns;
    fault.permille = permille;
    fault.skip.store(skip);
    fault.count.store(count);
    fault.hits.store(0);
    fault.active.store(1, std::memory_order_release);
    node->fault_count.fetch_add(1, std::memory_order_release);
    return i;
  }
  return -1;
}

void ClearFaults() {
  NodeState* node = AttachNode();
  if (node == nullptr) return;
  for (Fault& fault : node->faults) Retire(*node, fault);
}

void RaiseXid(int card, std::uint64_t code) {
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return;
  CardState& state = node->cards[card];
  // Written before it is announced; two that raise at once may share a place, and waiters then see
  // one of them twice.
  Xid& xid = state.xids[state.xid_sequence.load(std::memory_order_acquire) % kMaxXids];
  xid.code.store(code, std::memory_order_relaxed);
  xid.when_ns.store(NowNs(), std::memory_order_relaxed);
  state.xid_sequence.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace tessera::sim
