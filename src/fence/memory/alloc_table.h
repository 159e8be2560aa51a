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
#include "memory/arena.h"
#include "memory/block_record.h"
#include "memory/spin_lock.h"

namespace tessera::fence {

inline constexpr std::uint64_t kBlockShift = 21;
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << kBlockShift;
inline constexpr std::uint64_t kShareLimit = std::uint64_t{1}
                                             << 20;  // larger requests share no block

constexpr std::uint64_t RoundToBlocks(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) & ~(kBlockBytes - 1);
}

struct Allocation {
  std::uint64_t size = 0;   // bytes, below 2^44
  std::uint32_t owner = 0;  // context record or pool record, below 2^12; 0 = none
  std::uint32_t card = 0;   // below 16
  contract::Kind kind = contract::Kind::kLinear;
};
inline constexpr std::uint64_t kMaxAllocation = (std::uint64_t{1} << 44) - 1;
inline constexpr std::uint32_t kMaxOwners = 1u << 12;

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
  // What a shard knows of one block, in 8 bytes: nothing (0), one allocation that begins where the
  // block begins and leaves no count (kAlone and the packed allocation), or the address of a
  // BlockRecord.
  using BlockWord = std::uint64_t;
  static constexpr BlockWord kAlone = std::uint64_t{1} << 63;
  static constexpr unsigned kChunkShift = 6;  // blocks of a chunk: 128 MiB
  struct Chunk {
    std::uint64_t key;  // number of the chunk + 1; 0 = none
    BlockWord* words;   // 1 << kChunkShift of them
  };
  struct alignas(64) Shard {
    SpinLock lock;
    std::uint32_t mask = 0;   // places for chunks - 1; 0 = no table yet
    Chunk* chunks = nullptr;  // open-addressed; a chunk stays for the life of the process
    std::uint64_t live = 0;
    std::uint64_t partial_bytes = 0;
    std::uint32_t partial_blocks = 0;
    std::uint32_t filled = 0;
    Arena arena;
  };
  static constexpr std::uint32_t kShards = 16;
  static constexpr std::uint64_t kFirstChunks = 8;
  static constexpr std::uint64_t kChunkMask = (std::uint64_t{1} << kChunkShift) - 1;
  static constexpr std::uint64_t kNothing = UINT64_MAX;  // no packed allocation has bit 63

  static std::uint64_t Pack(const Allocation& a) {
    return a.size | std::uint64_t{a.owner} << 44 | std::uint64_t{a.card} << 56 |
           static_cast<std::uint64_t>(a.kind) << 60;
  }
  static Allocation Unpack(std::uint64_t value) {
    return {value & kMaxAllocation, static_cast<std::uint32_t>(value >> 44 & (kMaxOwners - 1)),
            static_cast<std::uint32_t>(value >> 56 & 15),
            static_cast<contract::Kind>(value >> 60 & 7)};
  }
  static std::uint64_t Mix(std::uint64_t chunk) { return chunk * 0x9e3779b97f4a7c15u; }
  Shard& ShardOf(std::uint64_t address) {
    return shards_[Mix(address >> (kBlockShift + kChunkShift)) >> 60];
  }
  static BlockRecord* RecordOf(BlockWord word) {
    return word == 0 || (word & kAlone) != 0 ? nullptr : reinterpret_cast<BlockRecord*>(word);
  }
  // The word of the block that `address` lies in; nullptr if nothing in its chunk was ever known.
  static BlockWord* WordOf(Shard& shard, std::uint64_t address);
  // The same, made if need be; nullptr when there is no memory.
  static BlockWord* MakeWord(Shard& shard, std::uint64_t address);
  static BlockWord* AddChunk(Shard& shard, std::uint64_t address);
  static bool GrowChunks(Shard& shard);
  // Makes the word a record that says the same.
  static BlockRecord* Promote(Shard& shard, BlockWord* word, std::uint64_t address);
  static BlockRecord* MakeRecord(Shard& shard, BlockWord* word, std::uint64_t address);
  // Gives a record back that says nothing any more.
  static void Settle(Shard& shard, BlockWord* word, BlockRecord* record);
  static void GiveRecord(Shard& shard, BlockWord* word, BlockRecord* record);
  // Adds or replaces; `*old` is what was there. `head`: counts in its own block.
  static bool Put(Shard& shard, std::uint64_t address, const Allocation& allocation, bool head,
                  bool paid, std::uint64_t* opened, bool* replaced, std::uint64_t* old);
  // The packed allocation at the address, kNothing if there is none; TakeOut removes it.
  static std::uint64_t Peek(Shard& shard, std::uint64_t address);
  static std::uint64_t TakeOut(Shard& shard, std::uint64_t address);
  // One more, one fewer partial user of the block; the bytes that this opens or closes.
  static std::uint64_t Open(Shard& shard, BlockRecord* record, bool paid);
  static bool OpenBlock(Shard& shard, std::uint64_t address, bool paid, std::uint64_t* opened);
  static std::uint64_t CloseBlock(Shard& shard, std::uint64_t address);
  std::uint64_t UnpaidBlock(std::uint64_t address, bool pay);
  // Calls visit(block, word) for each block that is known, until it returns false.
  template <typename Visit>
  static bool ForEach(Shard& shard, Visit&& visit);
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
