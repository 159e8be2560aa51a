#include "memory/alloc_table.h"

#include <cstring>

#include "os/os.h"

namespace tessera::fence {
namespace {

std::uint64_t Mix(std::uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 32;
}

// Blocks that an allocation touches: the first and the last may be covered in part.
struct Extent {
  std::uint64_t first, last;  // block numbers
  bool head,
      tail;  // covered in part: counted. `tail` is false when it is the same block as `head`.
  std::uint64_t whole;  // bytes of blocks that are covered in full
};

Extent ExtentOf(std::uint64_t address, const Allocation& allocation) {
  Extent e{};
  const std::uint64_t size = allocation.size;
  if (!ChargedByBlocks(allocation.kind)) {
    e.whole = allocation.kind == contract::Kind::kPool ? 0 : size;
    return e;
  }
  const std::uint64_t end = address + (size == 0 ? 1 : size);
  e.first = address >> kBlockShift;
  e.last = (end - 1) >> kBlockShift;
  const bool starts = (address & (kBlockBytes - 1)) == 0;
  const bool ends = (end & (kBlockBytes - 1)) == 0;
  if (e.first == e.last) {
    e.head = !(starts && ends);
    e.tail = false;
    e.whole = e.head ? 0 : kBlockBytes;
    return e;
  }
  e.head = !starts;
  e.tail = !ends;
  e.whole = (e.last - e.first + 1 - (e.head ? 1 : 0) - (e.tail ? 1 : 0)) << kBlockShift;
  return e;
}

}  // namespace

std::uint64_t AllocTable::Pack(const Allocation& a) {
  return a.size | std::uint64_t{a.owner} << 44 | std::uint64_t{a.card} << 56 |
         static_cast<std::uint64_t>(a.kind) << 60;
}

Allocation AllocTable::Unpack(std::uint64_t value) {
  Allocation a;
  a.size = value & kMaxAllocation;
  a.owner = static_cast<std::uint32_t>(value >> 44 & (kMaxOwners - 1));
  a.card = static_cast<std::uint32_t>(value >> 56 & 15);
  a.kind = static_cast<contract::Kind>(value >> 60 & 7);
  return a;
}

std::uint32_t AllocTable::Slot(std::uint64_t key, std::uint32_t mask) {
  return static_cast<std::uint32_t>(Mix(key) >> 8) & mask;
}

AllocTable::Shard& AllocTable::ShardOf(std::uint64_t address) {
  return shards_[Mix(address >> kBlockShift) >> 28 & (kShards - 1)];
}

AllocTable::Entry* AllocTable::Lookup(Shard& shard, std::uint64_t key) {
  if (shard.mask == 0) return nullptr;
  for (std::uint32_t i = Slot(key, shard.mask);; i = (i + 1) & shard.mask) {
    Entry& entry = shard.entries[i];
    if (entry.key == key) return &entry;
    if (entry.key == 0) return nullptr;
  }
}

bool AllocTable::Grow(Shard& shard) {
  const std::uint64_t capacity =
      shard.mask == 0 ? kFirstCapacity : (std::uint64_t{shard.mask} + 1) * 2;
  if (capacity > UINT32_MAX) return false;
  auto* entries = static_cast<Entry*>(os::MapPrivate(capacity * sizeof(Entry)));
  if (entries == nullptr) return false;
  const auto mask = static_cast<std::uint32_t>(capacity - 1);
  if (shard.mask != 0) {
    for (std::uint64_t i = 0; i <= shard.mask; ++i) {
      if (shard.entries[i].key == 0) continue;
      std::uint32_t at = Slot(shard.entries[i].key, mask);
      while (entries[at].key != 0) at = (at + 1) & mask;
      entries[at] = shard.entries[i];
    }
    os::Unmap(shard.entries, (std::uint64_t{shard.mask} + 1) * sizeof(Entry));
  }
  shard.entries = entries;
  shard.mask = mask;
  return true;
}

AllocTable::Entry* AllocTable::Add(Shard& shard, std::uint64_t key, std::uint64_t value) {
  if ((shard.mask == 0 || shard.filled >= shard.mask / 2) && !Grow(shard)) return nullptr;
  std::uint32_t at = Slot(key, shard.mask);
  while (shard.entries[at].key != 0) at = (at + 1) & shard.mask;
  shard.entries[at] = {key, value};
  ++shard.filled;
  return &shard.entries[at];
}

// Moves later entries of the run into the gap, so that no marks of deletion are needed.
void AllocTable::Erase(Shard& shard, Entry* entry) {
  auto gap = static_cast<std::uint32_t>(entry - shard.entries);
  for (std::uint32_t i = (gap + 1) & shard.mask; shard.entries[i].key != 0;
       i = (i + 1) & shard.mask) {
    const std::uint32_t home = Slot(shard.entries[i].key, shard.mask);
    if (((i - home) & shard.mask) >= ((i - gap) & shard.mask)) {
      shard.entries[gap] = shard.entries[i];
      gap = i;
    }
  }
  shard.entries[gap] = {0, 0};
  --shard.filled;
}

bool AllocTable::OpenBlock(Shard& shard, std::uint64_t address, std::uint64_t* opened) {
  const std::uint64_t key = BlockKey(address);
  if (Entry* block = Lookup(shard, key); block != nullptr) {
    ++block->value;
    return true;
  }
  if (Add(shard, key, 1) == nullptr) return false;
  ++shard.partial_blocks;
  *opened += kBlockBytes;
  return true;
}

std::uint64_t AllocTable::CloseBlock(Shard& shard, std::uint64_t address) {
  Entry* block = Lookup(shard, BlockKey(address));
  if (block == nullptr || --block->value != 0) return 0;
  Erase(shard, block);
  --shard.partial_blocks;
  return kBlockBytes;
}

bool AllocTable::Insert(std::uint64_t address, const Allocation& allocation, std::uint64_t* opened,
                        Allocation* stale, std::uint64_t* stale_bytes) {
  *opened = 0;
  *stale_bytes = 0;
  if (allocation.size > kMaxAllocation || allocation.owner >= kMaxOwners) return false;
  const Extent extent = ExtentOf(address, allocation);
  Shard& shard = ShardOf(address);
  if (extent.tail) {  // a block of another shard, perhaps
    Shard& other = ShardOf(extent.last << kBlockShift);
    if (!other.lock.Lock()) return false;
    const bool done = OpenBlock(other, extent.last << kBlockShift, opened);
    other.lock.Unlock();
    if (!done) return false;
  }
  bool done = shard.lock.Lock();
  if (done) {
    bool replaced = false;
    if (Entry* old = Lookup(shard, address); old != nullptr) {
      *stale = Unpack(old->value);
      old->value = Pack(allocation);
      replaced = true;
    } else {
      done = Add(shard, address, Pack(allocation)) != nullptr;
    }
    if (done && extent.head) {
      done = OpenBlock(shard, address, opened);
      if (done) {
        shard.partial_bytes += allocation.size;
      } else if (!replaced) {
        Erase(shard, Lookup(shard, address));
      }
    }
    shard.lock.Unlock();
    if (done && replaced) *stale_bytes = CloseBlocks(address, *stale);
  }
  if (!done && extent.tail) {
    Shard& other = ShardOf(extent.last << kBlockShift);
    if (other.lock.Lock()) {
      CloseBlock(other, extent.last << kBlockShift);
      other.lock.Unlock();
    }
  }
  if (done) *opened += extent.whole;
  return done;
}

bool AllocTable::Take(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || (address & 1) != 0 || !shard.lock.Lock()) return false;
  Entry* entry = Lookup(shard, address);
  if (entry != nullptr) {
    *allocation = Unpack(entry->value);
    Erase(shard, entry);
  }
  shard.lock.Unlock();
  return entry != nullptr;
}

bool AllocTable::PutBack(std::uint64_t address, const Allocation& allocation) {
  Shard& shard = ShardOf(address);
  if (!shard.lock.Lock()) return false;
  const bool done =
      Lookup(shard, address) == nullptr && Add(shard, address, Pack(allocation)) != nullptr;
  shard.lock.Unlock();
  return done;
}

std::uint64_t AllocTable::CloseBlocks(std::uint64_t address, const Allocation& allocation) {
  const Extent extent = ExtentOf(address, allocation);
  std::uint64_t bytes = extent.whole;
  if (extent.head) {
    Shard& shard = ShardOf(address);
    if (shard.lock.Lock()) {
      bytes += CloseBlock(shard, address);
      shard.partial_bytes -= allocation.size;
      shard.lock.Unlock();
    }
  }
  if (extent.tail) {
    Shard& other = ShardOf(extent.last << kBlockShift);
    if (other.lock.Lock()) {
      bytes += CloseBlock(other, extent.last << kBlockShift);
      other.lock.Unlock();
    }
  }
  return bytes;
}

bool AllocTable::Find(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || (address & 1) != 0 || !shard.lock.Lock()) return false;
  const Entry* entry = Lookup(shard, address);
  if (entry != nullptr) *allocation = Unpack(entry->value);
  shard.lock.Unlock();
  return entry != nullptr;
}

bool AllocTable::MayShare(std::uint64_t bytes) {
  for (Shard& shard : shards_) {
    if (!shard.lock.Lock()) continue;
    const std::uint64_t charged = std::uint64_t{shard.partial_blocks} << kBlockShift;
    const std::uint64_t taken = shard.partial_bytes;
    shard.lock.Unlock();
    if (charged >= taken + bytes) return true;
  }
  return false;
}

void AllocTable::TakeAll(std::uint32_t owner, std::uint32_t kinds,
                         void (*gone)(void* context, const Allocation&, std::uint64_t bytes),
                         void* context) {
  for (Shard& shard : shards_) {
    for (;;) {
      // A few at a time, so that no lock is held for long and none across the callback.
      struct {
        std::uint64_t address;
        Allocation allocation;
      } batch[32];
      std::uint32_t count = 0;
      if (!shard.lock.Lock()) break;
      for (std::uint64_t i = 0; shard.mask != 0 && i <= shard.mask && count < 32; ++i) {
        Entry& entry = shard.entries[i];
        if (entry.key == 0 || (entry.key & 1) != 0) continue;
        const Allocation allocation = Unpack(entry.value);
        if (allocation.owner != owner ||
            (kinds >> static_cast<std::uint32_t>(allocation.kind) & 1) == 0)
          continue;
        batch[count].address = entry.key;
        batch[count++].allocation = allocation;
        Erase(shard, &entry);
        --i;  // the gap may have been filled from behind
      }
      shard.lock.Unlock();
      for (std::uint32_t k = 0; k < count; ++k) {
        gone(context, batch[k].allocation, CloseBlocks(batch[k].address, batch[k].allocation));
      }
      if (count < 32) break;
    }
  }
}

std::uint64_t AllocTable::Live() {
  std::uint64_t live = 0;
  for (Shard& shard : shards_) {
    if (!shard.lock.Lock()) continue;
    live += shard.filled - shard.partial_blocks;
    shard.lock.Unlock();
  }
  return live;
}

void AllocTable::Reset() {
  for (Shard& shard : shards_) {
    if (shard.mask != 0) os::Unmap(shard.entries, (std::uint64_t{shard.mask} + 1) * sizeof(Entry));
    shard = Shard();
  }
}

bool AllocTable::IsValid() {
  std::uint64_t users = 0, counted = 0;
  for (Shard& shard : shards_) {
    std::uint32_t filled = 0, blocks = 0;
    for (std::uint64_t i = 0; shard.mask != 0 && i <= shard.mask; ++i) {
      const Entry& entry = shard.entries[i];
      if (entry.key == 0) continue;
      ++filled;
      if (Lookup(shard, entry.key) != &entry) return false;
      if ((entry.key & 1) != 0) {
        ++blocks;
        counted += entry.value;
        if (entry.value == 0) return false;
        continue;
      }
      const Extent extent = ExtentOf(entry.key, Unpack(entry.value));
      users += (extent.head ? 1 : 0) + (extent.tail ? 1 : 0);
      if (&ShardOf(entry.key) != &shard) return false;
    }
    if (filled != shard.filled || blocks != shard.partial_blocks) return false;
  }
  return users == counted;
}

}  // namespace tessera::fence
