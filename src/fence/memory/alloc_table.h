// What this process has allocated: address -> allocation, and which 2 MiB blocks it has been
// charged for.
//
// The driver hands out card memory in blocks of 2 MiB: requests of up to 1 MiB share a block,
// larger ones take whole blocks. So a block is charged once, however many allocations touch it, and
// refunded with the last of them.
//
// Thread safety: every function from any thread. Allocations of one block lie in one shard, each
// shard has a lock. Cost: O(1) in the number of live allocations; a shard that is half full
// doubles, which stops that shard only. Invariants:
//   1. An address is in the table at most once. Inserting one that is there replaces it: the driver
//      does not hand out live addresses, so the old one went with its context.
//   2. A block that is only partly covered by allocations has a count of them; fully covered blocks
//      need none.
// Errors: what cannot be done for lack of memory or patience returns false; the caller undoes the
// allocation.
#pragma once

#include <cstdint>

#include "contract/slice_layout.h"
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
              Allocation* stale, std::uint64_t* stale_bytes);
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
  struct Entry {
    std::uint64_t key;    // address, or block number * 2 + 1; 0 = empty
    std::uint64_t value;  // packed Allocation, or the number of partial users
  };
  struct alignas(64) Shard {
    SpinLock lock;
    std::uint32_t mask = 0;  // capacity - 1; 0 = no table yet
    std::uint32_t filled = 0;
    std::uint32_t partial_blocks = 0;
    std::uint64_t partial_bytes = 0;
    Entry* entries = nullptr;
  };
  static constexpr std::uint32_t kShards = 16;
  static constexpr std::uint32_t kFirstCapacity = 256;

  static std::uint64_t Pack(const Allocation& allocation);
  static Allocation Unpack(std::uint64_t value);
  static std::uint64_t BlockKey(std::uint64_t address) { return (address >> kBlockShift) << 1 | 1; }
  static std::uint32_t Slot(std::uint64_t key, std::uint32_t mask);
  Shard& ShardOf(std::uint64_t address);
  static Entry* Lookup(Shard& shard, std::uint64_t key);
  static bool Grow(Shard& shard);
  static Entry* Add(Shard& shard, std::uint64_t key, std::uint64_t value);
  static void Erase(Shard& shard, Entry* entry);
  // One more, one fewer partial user of the block; the bytes that this opens or closes.
  static bool OpenBlock(Shard& shard, std::uint64_t address, std::uint64_t* opened);
  static std::uint64_t CloseBlock(Shard& shard, std::uint64_t address);

  Shard shards_[kShards];
};

}  // namespace tessera::fence
