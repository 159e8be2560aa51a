#include "memory/alloc_table.h"

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

std::uint64_t AddressOf(std::uint64_t block, BlockRecord::Entry entry) {
  return block << kBlockShift | (entry & (kBlockBytes - 1));
}

}  // namespace

// Inlined where every nanosecond counts: what follows runs in every allocation and free.
[[gnu::always_inline]] inline bool AllocTable::Put(Shard& shard, std::uint64_t address,
                                                   const Allocation& allocation, bool head,
                                                   bool paid, std::uint64_t* opened, bool* replaced,
                                                   std::uint64_t* old) {
  *replaced = false;
  Word* word = shard.blocks.Make(address);
  if (word == nullptr) return false;
  if (*word == 0 && !head && (address & (kBlockBytes - 1)) == 0) {
    *word = BlockMap::kAlone | Pack(allocation);
    ++shard.live;
    return true;
  }
  BlockRecord* record = shard.blocks.Promote(word);
  if (record == nullptr) return false;
  const BlockPlace place = PlaceInBlock(address);
  const PackedAllocation value = Pack(allocation);
  Arena& arena = shard.blocks.arena();
  if (BlockRecord::Entry* entry = record->Find(place); entry != nullptr) [[unlikely]] {
    *old = record->ValueOf(entry);
    *replaced = record->Replace(entry, value, arena);
    if (!*replaced) return false;
  } else {
    if (!record->Add(place, value, arena)) {
      shard.blocks.Settle(word, record);
      return false;
    }
    ++shard.live;
  }
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
  Word* word = shard.blocks.Make(address);
  BlockRecord* record = word == nullptr ? nullptr : shard.blocks.Promote(word);
  if (record == nullptr) return false;
  *opened += Open(shard, record, paid);
  return true;
}

[[gnu::always_inline]] inline std::uint64_t AllocTable::CloseBlock(Shard& shard,
                                                                   std::uint64_t address) {
  Word* word = shard.blocks.Find(address);
  BlockRecord* record = word == nullptr ? nullptr : BlockMap::RecordOf(*word);
  if (record == nullptr || record->users == 0 || --record->users != 0) return 0;
  --shard.partial_blocks;
  const std::uint64_t bytes = record->unpaid != 0 ? 0 : kBlockBytes;
  record->unpaid = 0;
  shard.blocks.Settle(word, record);
  return bytes;
}

std::uint64_t AllocTable::UnpaidBlock(std::uint64_t address, bool pay) {
  Shard& shard = ShardOf(address);
  if (!shard.lock.Lock()) return 0;
  Word* word = shard.blocks.Find(address);
  BlockRecord* record = word == nullptr ? nullptr : BlockMap::RecordOf(*word);
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
      if (Word* word = other.blocks.Find(last); *opened != 0 && word != nullptr) {
        if (BlockRecord* record = BlockMap::RecordOf(*word); record != nullptr) record->unpaid = 1;
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
  Word* word = shard.blocks.Find(address);
  if (word == nullptr || *word == 0) return kNoAllocation;
  std::uint64_t value = *word;
  if ((value & BlockMap::kAlone) != 0) {
    if ((address & (kBlockBytes - 1)) != 0) return kNoAllocation;
    value &= ~BlockMap::kAlone;
    *word = 0;
  } else {
    BlockRecord* record = BlockMap::RecordOf(value);
    BlockRecord::Entry* entry = record->Find(PlaceInBlock(address));
    if (entry == nullptr) return kNoAllocation;
    value = record->ValueOf(entry);
    record->Erase(entry);
    shard.blocks.Settle(word, record);
  }
  --shard.live;
  return value;
}

bool AllocTable::Take(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || !shard.lock.Lock()) return false;
  const std::uint64_t value = TakeOut(shard, address);
  shard.lock.Unlock();
  if (value == kNoAllocation) return false;
  *allocation = Unpack(value);
  return true;
}

bool AllocTable::PutBack(std::uint64_t address, const Allocation& allocation) {
  Shard& shard = ShardOf(address);
  if (!shard.lock.Lock()) return false;
  std::uint64_t none = 0, old = 0;
  bool replaced = false;
  bool done = false;
  if (Peek(shard, address) == kNoAllocation)
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
  Word* word = shard.blocks.Find(address);
  if (word == nullptr || *word == 0) return kNoAllocation;
  if ((*word & BlockMap::kAlone) != 0)
    return (address & (kBlockBytes - 1)) == 0 ? *word & ~BlockMap::kAlone : kNoAllocation;
  BlockRecord* record = BlockMap::RecordOf(*word);
  const BlockRecord::Entry* entry = record->Find(PlaceInBlock(address));
  return entry == nullptr ? kNoAllocation : record->ValueOf(entry);
}

bool AllocTable::Find(std::uint64_t address, Allocation* allocation) {
  Shard& shard = ShardOf(address);
  if (address == 0 || !shard.lock.Lock()) return false;
  const std::uint64_t value = Peek(shard, address);
  shard.lock.Unlock();
  if (value == kNoAllocation) return false;
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

std::uint32_t AllocTable::TakeSome(Shard& shard, std::uint32_t owner, std::uint32_t kinds,
                                   Gone* gone, std::uint32_t most) {
  std::uint32_t count = 0;
  const auto wanted = [&](std::uint64_t value) {
    const Allocation a = Unpack(value);
    return a.owner == owner && (kinds >> static_cast<std::uint32_t>(a.kind) & 1) != 0;
  };
  shard.blocks.ForEach([&](std::uint64_t block, Word* word) {
    if ((*word & BlockMap::kAlone) != 0) {
      if (!wanted(*word & ~BlockMap::kAlone)) return true;
      gone[count++] = {block << kBlockShift, Unpack(*word & ~BlockMap::kAlone)};
      *word = 0;
      return count < most;
    }
    BlockRecord* record = BlockMap::RecordOf(*word);
    for (BlockRecord::Entry* entry = record->begin(); entry < record->end() && count < most;) {
      if (*entry == 0 || !wanted(record->ValueOf(entry))) {
        entry += record->Step();
        continue;
      }
      gone[count++] = {AddressOf(block, *entry), Unpack(record->ValueOf(entry))};
      record->Erase(entry);  // the gap may have been filled from behind: look at it again
    }
    shard.blocks.Settle(word, record);
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
    shard.blocks.Reset();
    shard = Shard();
  }
}

bool AllocTable::IsValid() {
  std::uint64_t users = 0, counted = 0;
  for (Shard& shard : shards_) {
    std::uint64_t live = 0, blocks = 0;
    const bool sound = shard.blocks.ForEach([&](std::uint64_t block, Word* word) {
      const std::uint64_t start = block << kBlockShift;
      if (&ShardOf(start) != &shard || shard.blocks.Find(start) != word) return false;
      if ((*word & BlockMap::kAlone) != 0) {
        const Extent extent = ExtentOf(start, Unpack(*word & ~BlockMap::kAlone));
        users += extent.tail ? 1 : 0;
        ++live;
        return !extent.head;
      }
      BlockRecord* record = BlockMap::RecordOf(*word);
      std::uint32_t filled = 0;
      for (BlockRecord::Entry* entry = record->begin(); entry < record->end();
           entry += record->Step()) {
        if (*entry == 0) continue;
        ++filled;
        if (record->Find(*entry & kPlaceMask) != entry) return false;
        const Extent extent = ExtentOf(AddressOf(block, *entry), Unpack(record->ValueOf(entry)));
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
