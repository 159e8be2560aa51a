#include "sim/cuda/small_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace tessera::sim {
namespace {

constinit Block* spare_blocks = nullptr;  // bookkeeping without a block, linked by bucket_next

int OrderFor(std::uint64_t size) {
  const std::uint64_t leaves = (std::max<std::uint64_t>(size, 1) + (1 << kLeafShift) - 1) >> kLeafShift;
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
  if ((block.free_words[order] &= ~(std::uint64_t{1} << position / 64)) == 0) block.free_orders &= ~(1u << order);
}

bool IsFree(const Block& block, int order, std::uint32_t position) {
  return block.free_bits[order][position / 64] >> position % 64 & 1;
}

void Unlink(BlockBuckets& buckets, Block& block) {
  if (block.bucket < 0) return;
  (block.bucket_previous ? block.bucket_previous->bucket_next : buckets.heads[block.bucket]) = block.bucket_next;
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
    block = new (std::nothrow) Block{};
    if (!block) return nullptr;
    std::memset(block->order_at, kNoPiece, sizeof block->order_at);
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
  block->order_at[leaf] = static_cast<std::uint8_t>(order);
  block->dirty_at[leaf] = 0;
  block->size_at[leaf] = static_cast<std::uint32_t>(size);
  block->id_at[leaf] = NextBufferId();
  ++block->live;
  Rebucket(buckets, *block);
  return block->base + (std::uint64_t{leaf} << kLeafShift);
}

bool FreeSmall(BlockBuckets& buckets, Block& block, std::uint64_t address, bool* empty) {
  const std::uint64_t offset = address - block.base;
  const auto leaf = static_cast<std::uint32_t>(offset >> kLeafShift);
  if (offset % (1 << kLeafShift) || block.order_at[leaf] == kNoPiece) return false;
  int order = block.order_at[leaf];
  if (block.dirty_at[leaf]) ClearBytes(address, std::uint64_t{1} << (kLeafShift + order));
  block.order_at[leaf] = kNoPiece;
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
    std::memset(block.order_at, kNoPiece, sizeof block.order_at);
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
    if (block.order_at[start] != kNoPiece && block.order_at[start] >= order && (leaf - start) >> block.order_at[start] == 0)
      return {block.base + (std::uint64_t{start} << kLeafShift), block.size_at[start], block.id_at[start], &block.dirty_at[start]};
  }
  return {0, 0, 0, nullptr};
}

}  // namespace tessera::sim
