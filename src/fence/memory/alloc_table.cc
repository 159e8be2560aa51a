#include "memory/alloc_table.h"

#include <bit>

namespace tessera::fence {
namespace {

// Blocks that an allocation touches: the first and the last may be covered in part.
struct Extent {
  std::uint64_t first, last;  // block numbers
  bool head,
      tail;  // covered in part: counted. `tail` is false when it is the same block as `head`.
  std::uint64_t whole;  // bytes of blocks that are covered in full
};

[[gnu::always_inline]] inline Extent ExtentOf(std::uint64_t address, const Allocation& allocation) {
  Extent e{};
  const std::uint64_t size = allocation.size;
  const std::uint64_t within = address & (kBlockBytes - 1);
  if (ChargedByBlocks(allocation.kind) && size != 0 && within + size < kBlockBytes) [[likely]] {
    e.head = true;  // inside one block
    return e;
  }
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

unsigned ChunksShift(std::uint64_t places) {
  return static_cast<unsigned>(std::countr_zero(places)) + 4;
}

}  // namespace

// Inlined where every nanosecond counts: what follows runs in every allocation and free.
[[gnu::always_inline]] inline AllocTable::BlockWord* AllocTable::WordOf(Shard& shard,
                                                                        std::uint64_t address) {
  if (shard.mask == 0) return nullptr;
  const std::uint64_t chunk = address >> (kBlockShift + kChunkShift);
  for (auto i = static_cast<std::uint32_t>(Mix(chunk) >> 32) & shard.mask;;
       i = (i + 1) & shard.mask) {
    if (shard.chunks[i].key == chunk + 1)
      return &shard.chunks[i].words[address >> kBlockShift & kChunkMask];
    if (shard.chunks[i].key == 0) return nullptr;
  }
}

AllocTable::BlockWord* AllocTable::AddChunk(Shard& shard, std::uint64_t address) {
  if (shard.filled >= shard.mask / 2 && !GrowChunks(shard)) return nullptr;
  auto* words = static_cast<BlockWord*>(shard.arena.Take(kChunkShift + 3));
  if (words == nullptr) return nullptr;
  const std::uint64_t chunk = address >> (kBlockShift + kChunkShift);
  auto at = static_cast<std::uint32_t>(Mix(chunk) >> 32) & shard.mask;
  while (shard.chunks[at].key != 0) at = (at + 1) & shard.mask;
  shard.chunks[at] = {chunk + 1, words};
  ++shard.filled;
  return &words[address >> kBlockShift & kChunkMask];
}

[[gnu::always_inline]] inline AllocTable::BlockWord* AllocTable::MakeWord(Shard& shard,
                                                                          std::uint64_t address) {
  BlockWord* word = WordOf(shard, address);
  return word != nullptr ? word : AddChunk(shard, address);
}

bool AllocTable::GrowChunks(Shard& shard) {
  const std::uint64_t capacity =
      shard.mask == 0 ? kFirstChunks : (std::uint64_t{shard.mask} + 1) * 2;
  auto* chunks = static_cast<Chunk*>(shard.arena.Take(ChunksShift(capacity)));
  if (chunks == nullptr) return false;
  const auto mask = static_cast<std::uint32_t>(capacity - 1);
  for (std::uint64_t i = 0; shard.mask != 0 && i <= shard.mask; ++i) {
    if (shard.chunks[i].key == 0) continue;
    auto at = static_cast<std::uint32_t>(Mix(shard.chunks[i].key - 1) >> 32) & mask;
    while (chunks[at].key != 0) at = (at + 1) & mask;
    chunks[at] = shard.chunks[i];
  }
  if (shard.mask != 0) shard.arena.Give(shard.chunks, ChunksShift(std::uint64_t{shard.mask} + 1));
  shard.chunks = chunks;
  shard.mask = mask;
  return true;
}

BlockRecord* AllocTable::MakeRecord(Shard& shard, BlockWord* word, std::uint64_t address) {
  auto* record = static_cast<BlockRecord*>(shard.arena.Take(Arena::kLeastShift));
  if (record == nullptr) return nullptr;
  if (*word != 0) {
    record->few[0] = {address & ~(kBlockBytes - 1), *word & ~kAlone};
    record->filled = 1;
  }
  *word = reinterpret_cast<BlockWord>(record);
  return record;
}

[[gnu::always_inline]] inline BlockRecord* AllocTable::Promote(Shard& shard, BlockWord* word,
                                                               std::uint64_t address) {
  BlockRecord* record = RecordOf(*word);
  return record != nullptr ? record : MakeRecord(shard, word, address);
}

[[gnu::always_inline]] inline void AllocTable::Settle(Shard& shard, BlockWord* word,
                                                      BlockRecord* record) {
  if (record->Unused()) GiveRecord(shard, word, record);
}

void AllocTable::GiveRecord(Shard& shard, BlockWord* word, BlockRecord* record) {
  record->Release(shard.arena);
  shard.arena.Give(record, Arena::kLeastShift);
  *word = 0;
}

[[gnu::always_inline]] inline bool AllocTable::Put(Shard& shard, std::uint64_t address,
                                                   const Allocation& allocation, bool head,
                                                   bool paid, std::uint64_t* opened, bool* replaced,
                                                   std::uint64_t* old) {
  *replaced = false;
  BlockWord* word = MakeWord(shard, address);
  if (word == nullptr) return false;
  if (*word == 0 && !head && (address & (kBlockBytes - 1)) == 0) {
    *word = kAlone | Pack(allocation);
    ++shard.live;
    return true;
  }
  BlockRecord* record = Promote(shard, word, address);
  if (record == nullptr) return false;
  const std::uint32_t before = record->filled;
  AllocEntry* entry = record->FindOrAdd(address, shard.arena);
  if (entry == nullptr) {
    Settle(shard, word, record);
    return false;
  }
  *replaced = record->filled == before;
  *old = entry->value;
  entry->value = Pack(allocation);
  if (!*replaced) ++shard.live;
  if (head) {
    *opened += Open(shard, record, paid);
    shard.partial_bytes += allocation.size;
  }
  return true;
}

[[gnu::always_inline]] inline std::uint64_t AllocTable::Open(Shard& shard, BlockRecord* record,
                                                             bool paid) {
  const bool shared = record->users++ != 0;
  if (shared && record->unpaid == 0) return 0;
  record->unpaid = paid ? 0 : 1;
  if (!shared) ++shard.partial_blocks;
  return kBlockBytes;
}

bool AllocTable::OpenBlock(Shard& shard, std::uint64_t address, bool paid, std::uint64_t* opened) {
  BlockWord* word = MakeWord(shard, address);
  BlockRecord* record = word == nullptr ? nullptr : Promote(shard, word, address);
  if (record == nullptr) return false;
  *opened += Open(shard, record, paid);
  return true;
}

[[gnu::always_inline]] inline std::uint64_t AllocTable::CloseBlock(Shard& shard,
                                                                   std::uint64_t address) {
  BlockWord* word = WordOf(shard, address);
  BlockRecord* record = word == nullptr ? nullptr : RecordOf(*word);
  if (record == nullptr || record->users == 0 || --record->users != 0) return 0;
  --shard.partial_blocks;
  const std::uint64_t bytes = record->unpaid != 0 ? 0 : kBlockBytes;
  record->unpaid = 0;
  Settle(shard, word, record);
  return bytes;
}

std::uint64_t AllocTable::UnpaidBlock(std::uint64_t address, bool pay) {
  Shard& shard = ShardOf(address);
  if (!shard.lock.Lock()) return 0;
  BlockWord* word = WordOf(shard, address);
  BlockRecord* record = word == nullptr ? nullptr : RecordOf(*word);
  const bool unpaid = record != nullptr && record->unpaid != 0;
  if (unpaid && pay) record->unpaid = 0;
  shard.lock.Unlock();
  return unpaid ? kBlockBytes : 0;
}

std::uint64_t AllocTable::Unpaid(std::uint64_t address, const Allocation& allocation) {
  const Extent extent = ExtentOf(address, allocation);
  return (extent.head ? UnpaidBlock(address, false) : 0) +
         (extent.tail ? UnpaidBlock(extent.last << kBlockShift, false) : 0);
}

std::uint64_t AllocTable::Pay(std::uint64_t address, const Allocation& allocation) {
  const Extent extent = ExtentOf(address, allocation);
  return (extent.head ? UnpaidBlock(address, true) : 0) +
         (extent.tail ? UnpaidBlock(extent.last << kBlockShift, true) : 0);
}

bool AllocTable::Insert(std::uint64_t address, const Allocation& allocation, std::uint64_t covered,
                        std::uint64_t* opened, std::uint64_t* unpaid, Allocation* stale,
                        std::uint64_t* stale_bytes) {
  *opened = 0;
  *unpaid = 0;
  *stale_bytes = 0;
  if (address == 0 || allocation.size > kMaxAllocation || allocation.owner >= kMaxOwners)
    return false;
  const Extent extent = ExtentOf(address, allocation);
  const std::uint64_t last = extent.last << kBlockShift;
  const std::uint64_t partial = (extent.head ? kBlockBytes : 0) + (extent.tail ? kBlockBytes : 0);
  const bool paid = covered >= partial && covered - partial >= extent.whole;
  if (extent.tail) {  // a block of another shard, perhaps
    Shard& other = ShardOf(last);
    if (!other.lock.Lock()) return false;
    const bool done = OpenBlock(other, last, paid, opened);
    other.lock.Unlock();
    if (!done) return false;
  }
  Shard& shard = ShardOf(address);
  bool replaced = false;
  std::uint64_t old = 0;
  bool done = shard.lock.Lock();
  if (done) {
    done = Put(shard, address, allocation, extent.head, paid, opened, &replaced, &old);
    shard.lock.Unlock();
  }
  if (replaced) {
    *stale = Unpack(old);
    *stale_bytes = CloseBlocks(address, *stale);
  }
  if (!done && extent.tail) {
    Shard& other = ShardOf(last);
    if (other.lock.Lock()) {
      // What was paid in advance goes back: a block that is shared by now is unpaid again.
      if (BlockWord* word = WordOf(other, last); *opened != 0 && word != nullptr) {
        if (BlockRecord* record = RecordOf(*word); record != nullptr) record->unpaid = 1;
      }
      CloseBlock(other, last);
      other.lock.Unlock();
    }
  }
  if (!paid) *unpaid = *opened;
  if (done) *opened += extent.whole;
  return done;
}

[[gnu::always_inline]] inline std::uint64_t AllocTable::TakeOut(Shard& shard,
                                                                std::uint64_t address) {
  BlockWord* word = WordOf(shard, address);
  if (word == nullptr || *word == 0) return kNothing;
  std::uint64_t value = *word;
  if ((value & kAlone) != 0) {
    if ((address & (kBlockBytes - 1)) != 0) return kNothing;
    value &= ~kAlone;
    *word = 0;
  } else {
    BlockRecord* record = RecordOf(value);
    AllocEntry* entry = record->Find(address);
    if (entry == nullptr) return kNothing;
    value = entry->value;
    record->Erase(entry);
    Settle(shard, word, record);
  }
  --shard.live;
  return value;
}

bool AllocTable::Take(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || !shard.lock.Lock()) return false;
  const std::uint64_t value = TakeOut(shard, address);
  shard.lock.Unlock();
  if (value == kNothing) return false;
  *allocation = Unpack(value);
  return true;
}

bool AllocTable::PutBack(std::uint64_t address, const Allocation& allocation) {
  Shard& shard = ShardOf(address);
  if (!shard.lock.Lock()) return false;
  std::uint64_t none = 0, old = 0;
  bool replaced = false;
  bool done = false;
  if (Peek(shard, address) == kNothing)
    done = Put(shard, address, allocation, false, true, &none, &replaced, &old);
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
    const std::uint64_t last = extent.last << kBlockShift;
    Shard& other = ShardOf(last);
    if (other.lock.Lock()) {
      bytes += CloseBlock(other, last);
      other.lock.Unlock();
    }
  }
  return bytes;
}

std::uint64_t AllocTable::Peek(Shard& shard, std::uint64_t address) {
  BlockWord* word = WordOf(shard, address);
  if (word == nullptr || *word == 0) return kNothing;
  if ((*word & kAlone) != 0) return (address & (kBlockBytes - 1)) == 0 ? *word & ~kAlone : kNothing;
  const AllocEntry* entry = RecordOf(*word)->Find(address);
  return entry == nullptr ? kNothing : entry->value;
}

bool AllocTable::Find(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || !shard.lock.Lock()) return false;
  const std::uint64_t value = Peek(shard, address);
  shard.lock.Unlock();
  if (value == kNothing) return false;
  *allocation = Unpack(value);
  return true;
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

template <typename Visit>
bool AllocTable::ForEach(Shard& shard, Visit&& visit) {
  for (std::uint64_t c = 0; shard.mask != 0 && c <= shard.mask; ++c) {
    const Chunk& chunk = shard.chunks[c];
    if (chunk.key == 0) continue;
    for (std::uint64_t b = 0; b <= kChunkMask; ++b) {
      const std::uint64_t block = (chunk.key - 1) << kChunkShift | b;
      if (chunk.words[b] != 0 && !visit(block, &chunk.words[b])) return false;
    }
  }
  return true;
}

std::uint32_t AllocTable::TakeSome(Shard& shard, std::uint32_t owner, std::uint32_t kinds,
                                   Gone* gone, std::uint32_t most) {
  std::uint32_t count = 0;
  const auto wanted = [&](std::uint64_t value) {
    const Allocation a = Unpack(value);
    return a.owner == owner && (kinds >> static_cast<std::uint32_t>(a.kind) & 1) != 0;
  };
  ForEach(shard, [&](std::uint64_t block, BlockWord* word) {
    if ((*word & kAlone) != 0) {
      if (!wanted(*word & ~kAlone)) return true;
      gone[count++] = {block << kBlockShift, Unpack(*word & ~kAlone)};
      *word = 0;
      return count < most;
    }
    BlockRecord* record = RecordOf(*word);
    for (AllocEntry* entry = record->begin(); entry < record->end() && count < most;) {
      if (entry->address == 0 || !wanted(entry->value)) {
        ++entry;
        continue;
      }
      gone[count++] = {entry->address, Unpack(entry->value)};
      record->Erase(entry);  // the gap may have been filled from behind: look at it again
    }
    Settle(shard, word, record);
    return count < most;
  });
  shard.live -= count;
  return count;
}

void AllocTable::TakeAll(std::uint32_t owner, std::uint32_t kinds,
                         void (*gone)(void* context, const Allocation&, std::uint64_t bytes),
                         void* context) {
  // A few at a time, so that no lock is held for long and none across the callback.
  constexpr std::uint32_t kBatch = 64;
  Gone batch[kBatch];
  for (Shard& shard : shards_) {
    for (std::uint32_t count = kBatch; count == kBatch;) {
      if (!shard.lock.Lock()) break;
      count = TakeSome(shard, owner, kinds, batch, kBatch);
      shard.lock.Unlock();
      for (std::uint32_t i = 0; i < count; ++i) {
        gone(context, batch[i].allocation, CloseBlocks(batch[i].address, batch[i].allocation));
      }
    }
  }
}

std::uint64_t AllocTable::Live() {
  std::uint64_t live = 0;
  for (Shard& shard : shards_) {
    if (!shard.lock.Lock()) continue;
    live += shard.live;
    shard.lock.Unlock();
  }
  return live;
}

void AllocTable::Reset() {
  for (Shard& shard : shards_) {
    shard.arena.Reset();
    shard = Shard();
  }
}

bool AllocTable::IsValid() {
  std::uint64_t users = 0, counted = 0;
  for (Shard& shard : shards_) {
    std::uint64_t live = 0, blocks = 0;
    const bool sound = ForEach(shard, [&](std::uint64_t block, BlockWord* word) {
      const std::uint64_t start = block << kBlockShift;
      if (&ShardOf(start) != &shard || WordOf(shard, start) != word) return false;
      if ((*word & kAlone) != 0) {
        const Extent extent = ExtentOf(start, Unpack(*word & ~kAlone));
        users += extent.tail ? 1 : 0;
        ++live;
        return !extent.head;
      }
      BlockRecord* record = RecordOf(*word);
      std::uint32_t filled = 0;
      for (const AllocEntry& entry : *record) {
        if (entry.address == 0) continue;
        ++filled;
        if (entry.address >> kBlockShift != block || record->Find(entry.address) != &entry)
          return false;
        const Extent extent = ExtentOf(entry.address, Unpack(entry.value));
        users += (extent.head ? 1 : 0) + (extent.tail ? 1 : 0);
      }
      counted += record->users;
      blocks += record->users != 0 ? 1 : 0;
      live += filled;
      return filled == record->filled && !record->Unused();
    });
    if (!sound || live != shard.live || blocks != shard.partial_blocks) return false;
  }
  return users == counted;
}

}  // namespace tessera::fence
