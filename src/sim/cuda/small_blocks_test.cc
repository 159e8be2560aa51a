#include "sim/cuda/small_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera::sim {
namespace {

class SmallBlocks : public testing::Test {
 protected:
  Block* Add() {
    const std::uint64_t base = TakeAddresses(kUnit);
    Block* block = AddBlock(buckets_, base);
    PublishRange(*block);
    return block;
  }
  void Drop(Block& block) {
    WithdrawRange(block);
    GiveAddresses(block.base, kUnit, false);
    DropBlock(buckets_, block);
  }
  MemoryLock lock_;
  BlockBuckets buckets_{};
};

TEST_F(SmallBlocks, ServeTheSmallestRoom) {
  EXPECT_EQ(TakeSmall(buckets_, 1), 0u);
  Block* block = Add();
  const std::uint64_t half = TakeSmall(buckets_, 1 << 20);
  const std::uint64_t one = TakeSmall(buckets_, 1);
  EXPECT_EQ(half, block->base);
  EXPECT_EQ(one, block->base + (1 << 20));
  EXPECT_EQ(TakeSmall(buckets_, 1 << 20), 0u);
  const std::uint64_t quarter = TakeSmall(buckets_, 300'000);
  EXPECT_EQ(quarter, block->base + (1 << 20) + (1 << 19));
  bool empty = true;
  EXPECT_FALSE(FreeSmall(buckets_, *block, one + 512, &empty));
  EXPECT_TRUE(FreeSmall(buckets_, *block, one, &empty));
  EXPECT_FALSE(empty);
  EXPECT_FALSE(FreeSmall(buckets_, *block, one, &empty));
  EXPECT_TRUE(FreeSmall(buckets_, *block, half, &empty));
  EXPECT_TRUE(FreeSmall(buckets_, *block, quarter, &empty));
  EXPECT_TRUE(empty);
  EXPECT_EQ(TakeSmall(buckets_, 1 << 20), block->base);  // all joined again
  EXPECT_TRUE(FreeSmall(buckets_, *block, block->base, &empty));
  Drop(*block);
}

TEST_F(SmallBlocks, FindEveryByteOfEveryPiece) {
  std::mt19937 random(3);
  std::vector<Block*> blocks = {Add(), Add(), Add()};
  std::map<std::uint64_t, std::uint64_t> live;  // address -> size
  for (int step = 0; step < 20'000; ++step) {
    if (!live.empty() && random() % 2) {
      auto it = live.lower_bound(blocks[0]->base + random() % (3 * kUnit));
      if (it == live.end()) it = live.begin();
      auto& block = static_cast<Block&>(*FindRange(it->first));
      bool empty = false;
      ASSERT_TRUE(FreeSmall(buckets_, block, it->first, &empty));
      live.erase(it);
      continue;
    }
    const std::uint64_t size = 1 + random() % (1u << random() % 20);
    const std::uint64_t address = TakeSmall(buckets_, size);
    if (!address) continue;
    auto next = live.lower_bound(address);
    ASSERT_TRUE(next == live.end() || address + size <= next->first);
    ASSERT_TRUE(next == live.begin() ||
                std::prev(next)->first + std::prev(next)->second <= address);
    live[address] = size;
    auto& block = static_cast<Block&>(*FindRange(address + size - 1));
    const Piece piece = FindPiece(block, address + random() % size);
    ASSERT_EQ(piece.base, address);
    ASSERT_EQ(piece.size, size);
  }
  for (const auto& [address, size] : live) {
    bool empty = false;
    ASSERT_TRUE(FreeSmall(buckets_, static_cast<Block&>(*FindRange(address)), address, &empty));
  }
  for (Block* block : blocks) {
    EXPECT_EQ(block->live, 0u);
    EXPECT_EQ(block->bucket, kOrders - 1);
    Drop(*block);
  }
}

TEST_F(SmallBlocks, ReservationsKeepAwayFromOpenAddresses) {
  const std::uint64_t open = TakeAddresses(3 * kUnit);
  *reinterpret_cast<int*>(open) = 1;
  const std::uint64_t reserved = ReserveAddresses(5 * kUnit, 0, 0);
  EXPECT_GT(reserved, open + 3 * kUnit);
  const std::uint64_t elsewhere =
      ReserveAddresses(kUnit, 0, reserved + kUnit);  // taken: any other place
  EXPECT_NE(elsewhere, 0u);
  EXPECT_TRUE(elsewhere + kUnit <= reserved || elsewhere >= reserved + 5 * kUnit);
  GiveAddresses(elsewhere, kUnit, true);
  GiveAddresses(reserved, 5 * kUnit, true);
  EXPECT_EQ(ReserveAddresses(kUnit, 0, reserved + kUnit), reserved + kUnit);
  GiveAddresses(reserved + kUnit, kUnit, true);
  GiveAddresses(open, 3 * kUnit, true);
  EXPECT_EQ(TakeAddresses(3 * kUnit), open);
  EXPECT_EQ(*reinterpret_cast<int*>(open), 0);
}

}  // namespace
}  // namespace tessera::sim
