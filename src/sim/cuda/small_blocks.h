// Small allocations: requests of up to 1 MiB share blocks of 2 MiB that belong to one context.
//
// A block is divided by halves (buddy system) down to 512 bytes, so each request takes the next
// power of two. What the card is charged is the block; it goes back when its last allocation is
// freed. Pieces are found by address in at most 12 steps.
//
// Thread safety: every function is called with MemoryLock held. Invariant: a Block of zero bytes is
// valid, so its bookkeeping costs host memory only where pieces are.
#pragma once

#include <cstdint>

#include "sim/cuda/address_space.h"

namespace tessera::sim {

inline constexpr std::uint64_t kSmallLimit = std::uint64_t{1} << 20;
inline constexpr int kLeafShift = 9, kOrders = 13;  // 512 bytes ... 2 MiB
inline constexpr std::uint32_t kLeaves = 1u << (kOrders - 1);

struct BlockPiece {
  std::uint64_t id;
  std::uint32_t size;  // as asked for
  std::uint16_t next_free;
  std::uint8_t order;
  std::uint8_t dirty;
};

// A Block of zero bytes is valid, and pieces are kept together at the front: bookkeeping costs host
// memory by the piece.
struct Block : Range {
  std::uint64_t free_bits[kOrders][kLeaves / 64];
  std::uint64_t free_words[kOrders];  // one bit per word of free_bits
  std::uint32_t free_orders;          // one bit per order with a free piece
  std::uint32_t live;
  Block* bucket_next;
  Block* bucket_previous;
  int bucket;                       // highest free order, -1 when full
  std::uint16_t pieces_used;        // of `pieces`, ever
  std::uint16_t pieces_free;        // head of the list through next_free; indices are + 1, 0 ends
  std::uint16_t piece_at[kLeaves];  // index + 1 of the piece that starts at the leaf, 0 none
  BlockPiece pieces[kLeaves];
};

// A context's blocks by their highest free order.
struct BlockBuckets {
  Block* heads[kOrders];
};

// An allocation inside one of the context's blocks; 0 when none has room.
std::uint64_t TakeSmall(BlockBuckets& buckets, std::uint64_t size);
// Makes a block of already charged and taken addresses known to the buckets.
Block* AddBlock(BlockBuckets& buckets, std::uint64_t base);
// Frees the piece that starts at `address`: false when none does. Sets `*empty` when it was the
// block's last.
bool FreeSmall(BlockBuckets& buckets, Block& block, std::uint64_t address, bool* empty);
// Takes an empty (or abandoned) block out of the buckets and keeps its bookkeeping for reuse.
void DropBlock(BlockBuckets& buckets, Block& block);

struct Piece {
  std::uint64_t base, size, id;
  std::uint8_t* dirty;
};
// The piece that holds the address; size 0 when it is free.
Piece FindPiece(Block& block, std::uint64_t address);

}  // namespace tessera::sim
