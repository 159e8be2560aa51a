#include "memory/block_record.h"

#include <bit>

namespace tessera::fence {
namespace {

constexpr std::uint32_t kFirstCapacity = 16;

unsigned ShiftOf(std::uint32_t mask, std::uint32_t wide) {
  return static_cast<unsigned>(
      std::countr_zero((std::uint64_t{mask} + 1) * sizeof(BlockRecord::Entry) << wide));
}

}  // namespace

bool BlockRecord::MoveTo(std::uint32_t capacity, bool wide_entries, Arena& arena) {
  BlockRecord moved{
      users, capacity - 1, 0, unpaid, static_cast<std::uint16_t>(wide_entries ? 1 : 0), {}};
  moved.table = static_cast<Entry*>(arena.Take(ShiftOf(moved.mask, moved.wide)));
  if (moved.table == nullptr) return false;
  for (Entry* entry = begin(); entry != end(); entry += Step()) {
    if (*entry == 0) continue;
    const BlockPlace place = *entry & kPlaceMask;
    moved.Write(moved.FreeEntry(place), place, ValueOf(entry));
    ++moved.filled;
  }
  if (mask != 0) Release(arena);
  *this = moved;
  return true;
}

bool BlockRecord::MakeRoom(Arena& arena) {
  return MoveTo(mask == 0 ? kFirstCapacity : (mask + 1) * 2, wide != 0, arena);
}

bool BlockRecord::Widen(Arena& arena) {
  if (filled == 0 && mask == 0) {
    wide = 1;
    return true;
  }
  return MoveTo(mask == 0 ? kFirstCapacity : mask + 1, true, arena);
}

void BlockRecord::Release(Arena& arena) { arena.Give(table, ShiftOf(mask, wide)); }

// Later entries of the run move into the gap, so that no marks of deletion are needed.
void BlockRecord::EraseFromTable(Entry* entry) {
  auto gap = static_cast<std::uint32_t>((entry - table) >> wide);
  for (std::uint32_t i = (gap + 1) & mask; *At(i) != 0; i = (i + 1) & mask) {
    const std::uint32_t home = Home(*At(i) & kPlaceMask);
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      Move(At(i), At(gap));
      gap = i;
    }
  }
  *At(gap) = 0;
}

}  // namespace tessera::fence
