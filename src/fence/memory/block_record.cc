#include "memory/block_record.h"

#include <bit>

namespace tessera::fence {
namespace {

constexpr std::uint32_t kFirstCapacity = 16;

unsigned ShiftOf(std::uint32_t mask) {
  return static_cast<unsigned>(std::countr_zero((std::uint64_t{mask} + 1) * sizeof(AllocEntry)));
}

}  // namespace

bool BlockRecord::Grow(Arena& arena) {
  const std::uint32_t capacity = mask == 0 ? kFirstCapacity : (mask + 1) * 2;
  BlockRecord grown{users, filled, capacity - 1, unpaid, {}};
  grown.table = static_cast<AllocEntry*>(arena.Take(ShiftOf(grown.mask)));
  if (grown.table == nullptr) return false;
  for (const AllocEntry& entry : *this) {
    if (entry.address == 0) continue;
    std::uint32_t at = grown.Home(entry.address);
    while (grown.table[at].address != 0) at = (at + 1) & grown.mask;
    grown.table[at] = entry;
  }
  Release(arena);
  *this = grown;
  return true;
}

void BlockRecord::Release(Arena& arena) {
  if (mask != 0) arena.Give(table, ShiftOf(mask));
}

// In a table later entries of the run move into the gap, so that no marks of deletion are needed.
void BlockRecord::Erase(AllocEntry* entry) {
  --filled;
  if (mask == 0) {
    *entry = few[filled];
    return;
  }
  auto gap = static_cast<std::uint32_t>(entry - table);
  for (std::uint32_t i = (gap + 1) & mask; table[i].address != 0; i = (i + 1) & mask) {
    const std::uint32_t home = Home(table[i].address);
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      table[gap] = table[i];
      gap = i;
    }
  }
  table[gap] = {0, 0};
}

}  // namespace tessera::fence
