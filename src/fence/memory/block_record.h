// A block of 2 MiB that allocations share: which begin in it, and how many cover it in part.
//
// Up to three allocations stand in the record itself, more in an open-addressed table of their own,
// so that what lies together on the card lies together here. Sixty-four bytes, zeroed at first.
//
// Thread safety: none; its shard has a lock. Errors: nullptr when there is no memory.
#pragma once

#include <cstdint>

#include "memory/arena.h"

namespace tessera::fence {

struct AllocEntry {
  std::uint64_t address;  // 0 = empty
  std::uint64_t value;    // a packed allocation
};

struct BlockRecord {
  static constexpr std::uint32_t kInline = 3;

  std::uint32_t users;   // allocations that cover the block in part
  std::uint32_t filled;  // allocations that begin in the block
  std::uint32_t mask;    // capacity of `table` - 1; 0: the entries are `few`
  std::uint32_t unpaid;  // 1: nobody has been charged for the block yet
  union {
    AllocEntry few[kInline];
    AllocEntry* table;
  };

  AllocEntry* Find(std::uint64_t address);
  // The entry of the address; a new one, of value 0, if there is none.
  AllocEntry* FindOrAdd(std::uint64_t address, Arena& arena);
  // Another entry may move to its place.
  void Erase(AllocEntry* entry);
  // All entries lie in [begin(), end()); some may be empty.
  AllocEntry* begin() { return mask == 0 ? few : table; }
  AllocEntry* end() { return mask == 0 ? few + filled : table + mask + 1; }
  bool Unused() const { return users == 0 && filled == 0; }
  // Gives back the table; the record itself is the caller's.
  void Release(Arena& arena);

 private:
  std::uint32_t Home(std::uint64_t address) const {
    return static_cast<std::uint32_t>(address * 0x9e3779b97f4a7c15u >> 32) & mask;
  }
  bool Grow(Arena& arena);
};
static_assert(sizeof(BlockRecord) == std::size_t{1} << Arena::kLeastShift);

inline AllocEntry* BlockRecord::Find(std::uint64_t address) {
  if (mask == 0) {
    for (std::uint32_t i = 0; i < filled; ++i) {
      if (few[i].address == address) return &few[i];
    }
    return nullptr;
  }
  for (std::uint32_t i = Home(address);; i = (i + 1) & mask) {
    if (table[i].address == address) return &table[i];
    if (table[i].address == 0) return nullptr;
  }
}

inline AllocEntry* BlockRecord::FindOrAdd(std::uint64_t address, Arena& arena) {
  if (mask == 0) {
    if (AllocEntry* entry = Find(address); entry != nullptr) return entry;
    if (filled < kInline) {
      few[filled] = {address, 0};
      return &few[filled++];
    }
    if (!Grow(arena)) return nullptr;
  }
  for (;;) {
    std::uint32_t i = Home(address);
    for (; table[i].address != 0; i = (i + 1) & mask) {
      if (table[i].address == address) return &table[i];
    }
    if (filled < (mask + 1) / 4 * 3) {
      table[i] = {address, 0};
      ++filled;
      return &table[i];
    }
    if (!Grow(arena)) return nullptr;
  }
}

}  // namespace tessera::fence
