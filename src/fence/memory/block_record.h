// A block of 2 MiB that allocations share: which begin in it, and how many cover it in part.
//
// An entry is one word that holds place and allocation, or two words each in a record that has met
// an allocation too large for that. Up to six words stand in the record itself, more in an
// open-addressed table of their own, so that what lies together on the card lies together here.
// Sixty-four bytes, zeroed at first.
//
// Thread safety: none; its shard has a lock. Errors: false when there is no memory; then nothing
// has changed.
#pragma once

#include <cstdint>

#include "memory/arena.h"
#include "memory/packed_allocation.h"

namespace tessera::fence {

struct BlockRecord {
  static constexpr std::uint32_t kInlineWords = 6;
  using Entry = std::uint64_t;  // its first word; 0 = empty

  // Not side by side with `filled`: the compiler would read both at once just after one was
  // written.
  std::uint32_t users;   // allocations that cover the block in part
  std::uint32_t mask;    // capacity of `table` - 1; 0: the entries are `few`
  std::uint32_t filled;  // allocations that begin in the block
  std::uint16_t unpaid;  // 1: nobody has been charged for the block yet
  std::uint16_t wide;    // 1: two words an entry, place and allocation
  union {
    Entry few[kInlineWords];
    Entry* table;
  };

  Entry* Find(BlockPlace place);
  PackedAllocation ValueOf(const Entry* entry) const {
    return wide != 0 ? entry[1] : WithoutPlace(*entry);
  }
  // Remembers what has no entry yet.
  bool Add(BlockPlace place, PackedAllocation value, Arena& arena);
  // `entry` is what Find said of the place.
  bool Replace(Entry* entry, PackedAllocation value, Arena& arena);
  // Another entry may move to its place.
  void Erase(Entry* entry);
  // All entries lie in [begin(), end()), Step() words apart; some may be empty.
  Entry* begin() { return mask == 0 ? few : table; }
  Entry* end() { return begin() + ((mask == 0 ? filled : mask + 1) << wide); }
  std::uint32_t Step() const { return 1u << wide; }
  bool Unused() const { return users == 0 && filled == 0; }
  // Of a record that says nothing: gives back its table and makes it as a new one.
  void Clear(Arena& arena) {
    if (mask != 0) Release(arena);
    mask = 0;
    wide = 0;
    unpaid = 0;
  }
  // Records that wait for their next use.
  BlockRecord* NextSpare() const { return reinterpret_cast<BlockRecord*>(few[0]); }
  void SetNextSpare(BlockRecord* record) { few[0] = reinterpret_cast<Entry>(record); }

 private:
  std::uint32_t Home(BlockPlace place) const {
    return static_cast<std::uint32_t>(place * 0x9e3779b97f4a7c15u >> 32) & mask;
  }
  Entry* At(std::uint32_t index) { return table + (std::uint64_t{index} << wide); }
  void Write(Entry* entry, BlockPlace place, PackedAllocation value);
  // Where a place that has no entry goes; its own, or the next that is free.
  Entry* FreeEntry(BlockPlace place);
  // Moves everything to a table of that many entries.
  bool MoveTo(std::uint32_t capacity, bool wide_entries, Arena& arena);
  void Release(Arena& arena);
  void EraseFromTable(Entry* entry);
  void Move(const Entry* from, Entry* to) const {
    to[0] = from[0];
    if (wide != 0) to[1] = from[1];
  }
  bool MakeRoom(Arena& arena);
  bool Widen(Arena& arena);
};
static_assert(sizeof(BlockRecord) == std::size_t{1} << Arena::kLeastShift);

[[gnu::always_inline]] inline BlockRecord::Entry* BlockRecord::Find(BlockPlace place) {
  if (mask == 0) {
    for (Entry *entry = few, *last = end(); entry != last; entry += Step()) {
      if ((*entry & kPlaceMask) == place) return entry;
    }
    return nullptr;
  }
  for (std::uint32_t i = Home(place);; i = (i + 1) & mask) {
    Entry* entry = At(i);
    if ((*entry & kPlaceMask) == place) return entry;
    if (*entry == 0) return nullptr;
  }
}

inline void BlockRecord::Write(Entry* entry, BlockPlace place, PackedAllocation value) {
  entry[0] = wide != 0 ? place : JoinPlace(place, value);
  if (wide != 0) entry[1] = value;
}

inline BlockRecord::Entry* BlockRecord::FreeEntry(BlockPlace place) {
  if (mask == 0) return few + (filled << wide);
  std::uint32_t i = Home(place);
  while (*At(i) != 0) i = (i + 1) & mask;
  return At(i);
}

[[gnu::always_inline]] inline bool BlockRecord::Add(BlockPlace place, PackedAllocation value,
                                                    Arena& arena) {
  if (wide == 0 && !FitsOneWord(value) && !Widen(arena)) return false;
  const bool room = mask == 0 ? (filled + 1) << wide <= kInlineWords : filled < (mask + 1) / 4 * 3;
  if (!room && !MakeRoom(arena)) return false;
  Write(FreeEntry(place), place, value);
  ++filled;
  return true;
}

inline bool BlockRecord::Replace(Entry* entry, PackedAllocation value, Arena& arena) {
  const BlockPlace place = *entry & kPlaceMask;
  if (wide == 0 && !FitsOneWord(value)) {
    if (!Widen(arena)) return false;
    entry = Find(place);
  }
  Write(entry, place, value);
  return true;
}

[[gnu::always_inline]] inline void BlockRecord::Erase(Entry* entry) {
  --filled;
  if (mask != 0) return EraseFromTable(entry);
  Move(few + (filled << wide), entry);
}

}  // namespace tessera::fence
