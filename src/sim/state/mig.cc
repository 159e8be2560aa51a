// Memory of MIG devices: no sums are kept, the slots are asked.
#include <algorithm>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

std::uint64_t HeldOn(const NodeState& node, int card, std::uint64_t mig) {
  const std::uint64_t high =
      std::min<std::uint64_t>(node.slots_high.load(std::memory_order_acquire), kMaxProcesses);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < high; ++i) {
    const ProcessSlot& slot = node.processes[i];
    if (slot.owner.load(std::memory_order_acquire) == 0) continue;
    const CardProcess& on_card = slot.cards[card];
    if (on_card.mig.load(std::memory_order_acquire) == mig) sum += HeldBytes(on_card);
  }
  return sum;
}

}  // namespace

std::uint64_t MigCapacity(const MigSpec& spec) { return spec.memory_bytes & ~(kBlockBytes - 1); }

void UseMigDevice(int card, int index) {
  NodeState* node = AttachNode();
  const int slot = OwnProcess();
  if (node == nullptr || slot < 0 || card < 0 || card >= static_cast<int>(node->card_count)) return;
  node->processes[slot].cards[card].mig.store(static_cast<std::uint64_t>(index + 1),
                                              std::memory_order_release);
}

std::uint64_t UsedOnMigDevice(int card, int index) {
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return 0;
  SweepDeadProcesses();
  return HeldOn(*node, card, static_cast<std::uint64_t>(index) + 1);
}

bool OverMigDevice(const NodeState& node, int card, int slot) {
  const std::uint64_t mig = node.processes[slot].cards[card].mig.load(std::memory_order_acquire);
  if (mig == 0 || mig > kMaxMigDevices) return false;
  return HeldOn(node, card, mig) > MigCapacity(node.specs[card].mig[mig - 1]);
}

}  // namespace tessera::sim
