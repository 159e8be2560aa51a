#include "sim/cuda/small_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::sim {
namespace {

constinit Block* spare_blocks = nullptr;  // bookkeeping without a block, linked by bucket_next

// Bookkeeping comes in slabs of fresh pages, which the kernel fills with zeros as they are touched.
constexpr std::size_t kSlab = 64;
constinit Block* slab = nullptr;
constinit std::size_t slab_left = 0;

Block* NewBookkeeping() {
  if (slab_left == 0) {
    void* pages = mmap(nullptr, kSlab * sizeof(Block), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    slab = static_cast<Block*>(pages);
    slab_left = kSlab;
  }
  --slab_left;
  return slab++;
}

int OrderFor(std::uint64_t size) {
  const std::uint64_t leaves =
      (std::max<std::uint64_t>(size, 1) + (1 << kLeafShift) - 1) >> kLeafShift;
  return std::bit_width(leaves - 1);
}

void MarkFree(Block& block, int order, std::uint32_t position) {
  block.free_bits[order][position / 64] |= std::uint64_t{1} << position % 64;
  block.free_words[order] |= std::uint64_t{1} << position / 64;
  block.free_orders |= 1u << order;
}

void MarkTaken(Block& block, int order, std::uint32_t position) {
  std::uint64_t& bits = block.free_bits[order][position / 64];
  if ((bits &= ~(std::uint64_t{1} << position % 64))) return;
  if ((block.free_words[order] &= ~(std::uint64_t{1} << position / 64)) == 0)
    block.free_orders &= ~(1u << order);
}

bool IsFree(const Block& block, int order, std::uint32_t position) {
  return block.free_bits[order][position / 64] >> position % 64 & 1;
}

void Unlink(BlockBuckets& buckets, Block& block) {
  if (block.bucket < 0) return;
  (block.bucket_previous ? block.bucket_previous->bucket_next : buckets.heads[block.bucket]) =
      block.bucket_next;
  if (block.bucket_next) block.bucket_next->bucket_previous = block.bucket_previous;
  block.bucket = -1;
}

void Rebucket(BlockBuckets& buckets, Block& block) {
  const int wanted = block.free_orders ? std::bit_width(block.free_orders) - 1 : -1;
  if (wanted == block.bucket) return;
  Unlink(buckets, block);
  if (wanted < 0) return;
  block.bucket = wanted;
  block.bucket_previous = nullptr;
  block.bucket_next = buckets.heads[wanted];
  if (block.bucket_next) block.bucket_next->bucket_previous = &block;
  buckets.heads[wanted] = &block;
}

}  // namespace

Block* AddBlock(BlockBuckets& buckets, std::uint64_t base) {
  Block* block = spare_blocks;
  if (block) {
    spare_blocks = block->bucket_next;
  } else {
    block = NewBookkeeping();
    if (!block) return nullptr;
  }
  block->kind = RangeKind::kBlock;
  block->base = base;
  block->bytes = kUnit;
  block->live = 0;
  block->bucket = -1;
  MarkFree(*block, kOrders - 1, 0);
  Rebucket(buckets, *block);
  return block;
}

std::uint64_t TakeSmall(BlockBuckets& buckets, std::uint64_t size) {
  const int order = OrderFor(size);
  Block* block = nullptr;
  for (int i = order; i < kOrders && !block; ++i) block = buckets.heads[i];
  if (!block) return 0;
  const int found = order + std::countr_zero(block->free_orders >> order);
  const int word = std::countr_zero(block->free_words[found]);
  std::uint32_t position = word * 64 + std::countr_zero(block->free_bits[found][word]);
  MarkTaken(*block, found, position);
  for (int i = found; i > order; --i) {
    position *= 2;
    MarkFree(*block, i - 1, position + 1);
  }
  const std::uint32_t leaf = position << order;
  std::uint16_t index = block->pieces_free;
  if (index)
    block->pieces_free = block->pieces[index - 1].next_free;
  else
    index = ++block->pieces_used;
  block->piece_at[leaf] = index;
  block->pieces[index - 1] = {NextBufferId(), static_cast<std::uint32_t>(size), 0,
                              static_cast<std::uint8_t>(order), 0};
  ++block->live;
  Rebucket(buckets, *block);
  return block->base + (std::uint64_t{leaf} << kLeafShift);
}

bool FreeSmall(BlockBuckets& buckets, Block& block, std::uint64_t address, bool* empty) {
  const std::uint64_t offset = address - block.base;
  const auto leaf = static_cast<std::uint32_t>(offset >> kLeafShift);
  if (offset % (1 << kLeafShift) || block.piece_at[leaf] == 0) return false;
  BlockPiece& piece = block.pieces[block.piece_at[leaf] - 1];
  int order = piece.order;
  if (piece.dirty) ClearBytes(address, std::uint64_t{1} << (kLeafShift + order));
  piece.next_free = block.pieces_free;
  block.pieces_free = block.piece_at[leaf];
  block.piece_at[leaf] = 0;
  std::uint32_t position = leaf >> order;
  for (; order < kOrders - 1 && IsFree(block, order, position ^ 1); ++order) {
    MarkTaken(block, order, position ^ 1);
    position /= 2;
  }
  MarkFree(block, order, position);
  *empty = --block.live == 0;
  Rebucket(buckets, block);
  return true;
}

void DropBlock(BlockBuckets& buckets, Block& block) {
  Unlink(buckets, block);
  if (block.live) {
    std::memset(block.piece_at, 0, sizeof block.piece_at);
    block.pieces_used = block.pieces_free = 0;
    std::memset(block.free_bits, 0, sizeof block.free_bits);
    std::memset(block.free_words, 0, sizeof block.free_words);
    block.free_orders = 0;
  } else {
    MarkTaken(block, kOrders - 1, 0);
  }
  block.bucket_next = spare_blocks;
  spare_blocks = &block;
}

Piece FindPiece(Block& block, std::uint64_t address) {
  const auto leaf = static_cast<std::uint32_t>((address - block.base) >> kLeafShift);
  for (int order = 0; order < kOrders; ++order) {
    const std::uint32_t start = leaf >> order << order;
    if (block.piece_at[start] == 0) continue;
    BlockPiece& piece = block.pieces[block.piece_at[start] - 1];
    if ((leaf - start) >> piece.order == 0)
      return {block.base + (std::uint64_t{start} << kLeafShift), piece.size, piece.id,
              &piece.dirty};
  }
  return {0, 0, 0, nullptr};
}

}  // namespace tessera::sim
