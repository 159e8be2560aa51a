// What this process has allocated: address -> allocation, and which 2 MiB blocks it has been
// charged for.
//
// The driver hands out card memory in blocks of 2 MiB: requests of up to 1 MiB share a block,
// larger ones take whole blocks. So a block is charged once, however many allocations touch it, and
// refunded with the last of them.
//
// A shard keeps 8 bytes for each block, 64 blocks in a row; blocks that allocations share have a
// record with their addresses. So neighbours on the card are neighbours in memory, and a call
// touches two or three cache lines however many allocations live.
//
// Thread safety: every function from any thread. 64 neighbouring blocks lie in one shard, each
// shard has a lock that is never held across a call out of here. Cost: O(1) in the number of live
// allocations; a block's table that is 3/4 full doubles. Invariants:
//   1. An address is in the table at most once. Inserting one that is there replaces it: the driver
//   does not hand out live addresses,
//      so the old one went with its context.
//   2. A block that is only partly covered by allocations has a count of them; fully covered blocks
//   need none.
// Errors: what cannot be done for lack of memory or patience returns false; the caller undoes the
// allocation.
#pragma once

#include <cstdint>

#include "contract/slice_layout.h"
#include "memory/block_map.h"
#include "memory/packed_allocation.h"
#include "memory/spin_lock.h"

namespace tessera::fence {

inline constexpr std::uint64_t kShareLimit = std::uint64_t{1}
                                             << 20;  // larger requests share no block

constexpr std::uint64_t RoundToBlocks(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
}

// The others are charged as a whole by their size; allocations from a pool not at all, since their
// pool is.
constexpr bool ChargedByBlocks(contract::Kind kind) {
  return kind == contract::Kind::kLinear || kind == contract::Kind::kManaged;
}

class AllocTable {
 public:
  // Remembers the allocation and sets `*opened` to the bytes of the blocks that nothing else was
  // charged for. When it replaces an older entry, `*stale` is that one and `*stale_bytes` what its
  // blocks were charged (otherwise stale_bytes is 0).
  bool Insert(std::uint64_t address, const Allocation& allocation, std::uint64_t* opened,
              Allocation* stale, std::uint64_t* stale_bytes) {
    std::uint64_t unpaid = 0;
    return Insert(address, allocation, UINT64_MAX, opened, &unpaid, stale, stale_bytes);
  }
  // The same where only `covered` bytes have been charged so far. If that may be too little, blocks
  // that are opened stay marked as unpaid, and whoever comes to share one has to charge it as well:
  // `*unpaid` of the `*opened` bytes are such blocks. The caller charges and calls Pay, or takes
  // the allocation out again.
  bool Insert(std::uint64_t address, const Allocation& allocation, std::uint64_t covered,
              std::uint64_t* opened, std::uint64_t* unpaid, Allocation* stale,
              std::uint64_t* stale_bytes);
  // Bytes of the allocation's blocks that nobody has paid yet.
  std::uint64_t Unpaid(std::uint64_t address, const Allocation& allocation);
  // The same, and they are paid now: what the caller has charged beyond the result somebody else
  // had charged before.
  std::uint64_t Pay(std::uint64_t address, const Allocation& allocation);
  // Takes the allocation out before the driver frees it, so that another thread that is given the
  // same address finds it gone. Its blocks stay charged until CloseBlocks.
  bool Take(std::uint64_t address, Allocation* allocation);
  // The driver did not free it after all.
  bool PutBack(std::uint64_t address, const Allocation& allocation);
  // Bytes to refund after the driver has freed the allocation.
  std::uint64_t CloseBlocks(std::uint64_t address, const Allocation& allocation);
  bool Find(std::uint64_t address, Allocation* allocation);
  // Whether a charged block might have room for `bytes` more. An estimate: the driver decides.
  bool MayShare(std::uint64_t bytes);
  // Takes out every allocation of `owner` whose kind is in `kinds` (bit mask), calling
  // gone(context, allocation, bytes to refund).
  void TakeAll(std::uint32_t owner, std::uint32_t kinds,
               void (*gone)(void* context, const Allocation&, std::uint64_t bytes), void* context);
  std::uint64_t Live();
  // In a forked child: forgets everything; the memory of the tables is given back.
  void Reset();
  // Checks the structure (for tests): counts, reachability of every key, block counts against
  // allocations.
  bool IsValid();

 private:
  using Word = BlockMap::Word;
  struct alignas(64) Shard {
    SpinLock lock;
    std::uint32_t partial_blocks = 0;
    BlockMap blocks;
    std::uint64_t live = 0;
    std::uint64_t partial_bytes = 0;
  };
  static constexpr std::uint32_t kShards = 16;

  Shard& ShardOf(std::uint64_t address) {
    return shards_[BlockMap::Mix(BlockMap::ChunkOf(address)) >> 60];
  }
  // Adds or replaces; `*old` is what was there. `head`: counts in its own block.
  static bool Put(Shard& shard, std::uint64_t address, const Allocation& allocation, bool head,
                  bool paid, std::uint64_t* opened, bool* replaced, std::uint64_t* old);
  // The packed allocation at the address, kNoAllocation if there is none; TakeOut removes it.
  static std::uint64_t Peek(Shard& shard, std::uint64_t address);
  static std::uint64_t TakeOut(Shard& shard, std::uint64_t address);
  // One more, one fewer partial user of the block; the bytes that this opens or closes.
  static std::uint64_t Open(Shard& shard, BlockRecord* record, bool paid);
  static bool OpenBlock(Shard& shard, std::uint64_t address, bool paid, std::uint64_t* opened);
  static std::uint64_t CloseBlock(Shard& shard, std::uint64_t address);
  std::uint64_t UnpaidBlock(std::uint64_t address, bool pay);
  struct Gone {
    std::uint64_t address;
    Allocation allocation;
  };
  // Takes out up to `most` of the owner's allocations; fewer only if there are no more.
  static std::uint32_t TakeSome(Shard& shard, std::uint32_t owner, std::uint32_t kinds, Gone* gone,
                                std::uint32_t most);

  Shard shards_[kShards];
};

}  // namespace tessera::fence
