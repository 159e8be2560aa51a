// Who holds how much of a card.
//
// A charge changes `used` first and `held` after it, inside a window in which the slot's count of
// charges under way is not 0. So a process killed anywhere leaves `used` at or above the truth, and
// the window tells whoever takes its slot out that the sum must be counted again.
#include <algorithm>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

constexpr int kRecountTries = 64;

std::uint64_t WholeBlocks(std::uint64_t bytes) {
  if (bytes > ~std::uint64_t{0} - kBlockBytes) return ~(kBlockBytes - 1);
  return (bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
}

std::uint64_t Capacity(const CardSpec& spec) {
  return (spec.memory_bytes - spec.reserved_bytes) & ~(kBlockBytes - 1);
}

bool AddUsed(CardState& card, std::uint64_t bytes, std::uint64_t capacity) {
  std::uint64_t word = card.used.load(std::memory_order_relaxed);
  do {
    if (bytes > capacity || UsedOf(word) > capacity - bytes) return false;
  } while (!card.used.compare_exchange_weak(word, UsedWord(UsedOf(word) + bytes, word),
                                            std::memory_order_acq_rel));
  return true;
}

// One try; nothing is changed when it is refused.
bool TryCharge(NodeState& node, int card, int slot, std::uint64_t bytes) {
  CardProcess& own = node.processes[slot].cards[card];
  own.held.fetch_add(1, std::memory_order_acq_rel);
  if (!AddUsed(node.cards[card], bytes, Capacity(node.specs[card]))) {
    own.held.fetch_sub(1, std::memory_order_acq_rel);
    return false;
  }
  own.held.fetch_add(bytes - 1, std::memory_order_acq_rel);
  return true;
}

// Limits within the card: of the MIG device, of cgroups.
bool OverSomeLimit(NodeState& node, int card, int slot) {
  if (OverMigDevice(node, card, slot)) return true;
  if (node.limit_count.load(std::memory_order_acquire) == 0) return false;
  ReadOwnCgroup(node.processes[slot].cgroup, sizeof node.processes[slot].cgroup);
  return OverMemoryLimit(node, card, slot);
}

}  // namespace

std::uint64_t UsedWord(std::uint64_t bytes, std::uint64_t last_word) {
  return bytes / kBlockBytes << kUsedShift | ((last_word + 1) & kVersionMask);
}

void SubtractUsed(CardState& card, std::uint64_t bytes) {
  std::uint64_t word = card.used.load(std::memory_order_relaxed);
  while (!card.used.compare_exchange_weak(
      word, UsedWord(UsedOf(word) - std::min(bytes, UsedOf(word)), word),
      std::memory_order_acq_rel)) {
  }
}

void Recount(NodeState& node, int card) {
  CardState& state = node.cards[card];
  for (int attempt = 0; attempt < kRecountTries; ++attempt) {
    // A wish made after this look is another's: it must outlive this recount.
    std::uint64_t wish = state.recount_wanted.load(std::memory_order_acquire);
    std::uint64_t before = state.used.load(std::memory_order_acquire);
    const std::uint64_t high =
        std::min<std::uint64_t>(node.slots_high.load(std::memory_order_acquire), kMaxProcesses);
    std::uint64_t sum = 0;
    bool quiet = true;
    for (std::uint64_t i = 0; i < high && quiet; ++i) {
      const ProcessSlot& slot = node.processes[i];
      const std::uint64_t owner = slot.owner.load(std::memory_order_acquire);
      if (owner == 0) continue;
      const std::uint64_t held = slot.cards[card].held.load(std::memory_order_acquire);
      quiet = (owner & kTakingOut) == 0 && (held & kUnderWayMask) == 0;
      sum += held & ~kUnderWayMask;
    }
    if (!quiet) continue;
    if (state.used.compare_exchange_strong(before, UsedWord(sum, before),
                                           std::memory_order_acq_rel)) {
      state.recount_wanted.compare_exchange_strong(wish, 0, std::memory_order_acq_rel);
      return;
    }
  }
}

bool ChargeCard(int card, std::uint64_t bytes) {
  NodeState* node = AttachNode();
  const int slot = OwnProcess();
  if (node == nullptr || slot < 0 || card < 0 || card >= static_cast<int>(node->card_count))
    return false;
  bytes = WholeBlocks(bytes);
  if (!TryCharge(*node, card, slot, bytes)) {
    SweepThoroughly(*node);
    if (!TryCharge(*node, card, slot, bytes)) return false;
  }
  // Charged first and then summed: two that race may both be refused, but never both be granted the
  // last byte.
  if (!OverSomeLimit(*node, card, slot)) return true;
  SweepThoroughly(*node);
  if (!OverSomeLimit(*node, card, slot)) return true;
  UnchargeCard(card, bytes);
  return false;
}

void UnchargeCard(int card, std::uint64_t bytes) {
  NodeState* node = AttachNode();
  const int slot = OwnProcess();
  if (node == nullptr || slot < 0 || card < 0 || card >= static_cast<int>(node->card_count)) return;
  CardProcess& own = node->processes[slot].cards[card];
  bytes = std::min(WholeBlocks(bytes), HeldBytes(own));
  own.held.fetch_add(1, std::memory_order_acq_rel);
  SubtractUsed(node->cards[card], bytes);
  own.held.fetch_sub(bytes + 1, std::memory_order_acq_rel);
}

std::uint64_t UsedBytes(int card) {
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return 0;
  SweepDeadProcesses();
  return UsedOf(node->cards[card].used.load(std::memory_order_acquire));
}

std::uint64_t FreeBytes(int card) {
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return 0;
  const int slot = OwnProcess();
  if (const std::uint64_t mig =
          slot < 0 ? 0 : node->processes[slot].cards[card].mig.load(std::memory_order_acquire)) {
    const std::uint64_t capacity = MigCapacity(node->specs[card].mig[mig - 1]);
    return capacity - std::min(capacity, UsedOnMigDevice(card, static_cast<int>(mig - 1)));
  }
  const std::uint64_t capacity = Capacity(node->specs[card]);
  return capacity - std::min(capacity, UsedBytes(card));
}

}  // namespace tessera::sim
