#include "memory/alloc_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace tessera::fence {
namespace {

using contract::Kind;
constexpr std::uint64_t kBase = std::uint64_t{1} << 40;

Allocation Linear(std::uint64_t size, std::uint32_t owner = 1, std::uint32_t card = 0) {
  Allocation a;
  a.size = size;
  a.owner = owner;
  a.card = card;
  return a;
}

struct Table {
  std::unique_ptr<AllocTable> table = std::make_unique<AllocTable>();
  ~Table() { table->Reset(); }
  std::uint64_t Insert(std::uint64_t address, const Allocation& a) {
    std::uint64_t opened = 0, stale_bytes = 0;
    Allocation stale;
    EXPECT_TRUE(table->Insert(address, a, &opened, &stale, &stale_bytes));
    EXPECT_EQ(stale_bytes, 0u);
    return opened;
  }
  std::uint64_t Free(std::uint64_t address) {
    Allocation a;
    EXPECT_TRUE(table->Take(address, &a));
    return table->CloseBlocks(address, a);
  }
};

TEST(AllocTable, SmallRequestsShareABlock) {
  Table t;
  EXPECT_EQ(t.Insert(kBase, Linear(4096)), kBlockBytes);
  EXPECT_EQ(t.Insert(kBase + 4096, Linear(4096)), 0u);
  EXPECT_EQ(t.Insert(kBase + kBlockBytes, Linear(4096)), kBlockBytes);
  EXPECT_TRUE(t.table->IsValid());
  EXPECT_EQ(t.Free(kBase), 0u);
  EXPECT_EQ(t.Free(kBase + 4096), kBlockBytes);
  EXPECT_EQ(t.Free(kBase + kBlockBytes), kBlockBytes);
  EXPECT_EQ(t.table->Live(), 0u);
}

TEST(AllocTable, LargeRequestsTakeEveryBlockThatTheyTouch) {
  Table t;
  EXPECT_EQ(t.Insert(kBase, Linear(3 << 20)), 2 * kBlockBytes);     // 1.5 blocks
  EXPECT_EQ(t.Insert(kBase + 3 * (1 << 20), Linear(1 << 20)), 0u);  // the other half
  EXPECT_EQ(t.Insert(kBase + (kBlockBytes * 8) + 4096, Linear(4 << 20)),
            3 * kBlockBytes);  // unaligned: three
  EXPECT_TRUE(t.table->IsValid());
  EXPECT_EQ(t.Free(kBase), kBlockBytes);
  EXPECT_EQ(t.Free(kBase + 3 * (1 << 20)), kBlockBytes);
  EXPECT_EQ(t.Free(kBase + (kBlockBytes * 8) + 4096), 3 * kBlockBytes);
  EXPECT_TRUE(t.table->IsValid());
}

TEST(AllocTable, RemembersEveryField) {
  Table t;
  Allocation a;
  a.size = kMaxAllocation;
  a.owner = kMaxOwners - 1;
  a.card = 15;
  a.kind = Kind::kContext;
  EXPECT_EQ(t.Insert(0x1230, a), kMaxAllocation);
  Allocation found;
  ASSERT_TRUE(t.table->Find(0x1230, &found));
  EXPECT_EQ(found.size, a.size);
  EXPECT_EQ(found.owner, a.owner);
  EXPECT_EQ(found.card, a.card);
  EXPECT_EQ(found.kind, a.kind);
}

TEST(AllocTable, PoolMemoryIsNotChargedHere) {
  Table t;
  Allocation a = Linear(64 << 20);
  a.kind = Kind::kPool;
  EXPECT_EQ(t.Insert(kBase, a), 0u);
  EXPECT_EQ(t.Free(kBase), 0u);
}

TEST(AllocTable, UnknownAddressesAreUnknown) {
  Table t;
  Allocation a;
  EXPECT_FALSE(t.table->Take(0, &a));
  EXPECT_FALSE(t.table->Take(kBase, &a));
  t.Insert(kBase, Linear(100));
  EXPECT_FALSE(t.table->Take(kBase + 1, &a));  // a block's key is odd: not an address
  EXPECT_FALSE(t.table->Take((kBase >> kBlockShift) << 1 | 1, &a));
}

TEST(AllocTable, AnAddressThatComesBackReplacesWhatWentWithItsContext) {
  Table t;
  t.Insert(kBase, Linear(5 << 20, 1));
  std::uint64_t opened = 0, stale_bytes = 0;
  Allocation stale;
  ASSERT_TRUE(t.table->Insert(kBase, Linear(4096, 2), &opened, &stale, &stale_bytes));
  EXPECT_EQ(opened, kBlockBytes);
  EXPECT_EQ(stale_bytes, 3 * kBlockBytes);
  EXPECT_EQ(stale.owner, 1u);
  EXPECT_TRUE(t.table->IsValid());
  EXPECT_EQ(t.Free(kBase), kBlockBytes);
}

TEST(AllocTable, APutBackAllocationIsAsBefore) {
  Table t;
  t.Insert(kBase, Linear(4096));
  Allocation a;
  ASSERT_TRUE(t.table->Take(kBase, &a));
  ASSERT_TRUE(t.table->PutBack(kBase, a));
  EXPECT_TRUE(t.table->IsValid());
  EXPECT_EQ(t.Free(kBase), kBlockBytes);
}

TEST(AllocTable, TakesAllOfOneContext) {
  Table t;
  for (std::uint64_t i = 0; i < 5000; ++i)
    t.Insert(kBase + i * 65536, Linear(65536, 1 + i % 3, i % 2));
  struct Sum {
    std::uint64_t count = 0, bytes = 0;
  } sum;
  t.table->TakeAll(
      2, ~0u,
      [](void* context, const Allocation& a, std::uint64_t bytes) {
        EXPECT_EQ(a.owner, 2u);
        ++static_cast<Sum*>(context)->count;
        static_cast<Sum*>(context)->bytes += bytes;
      },
      &sum);
  EXPECT_EQ(sum.count, 5000u / 3 + 1);
  EXPECT_EQ(t.table->Live(), 5000 - sum.count);
  EXPECT_TRUE(t.table->IsValid());
}

// Against a model: which blocks are touched by anything live.
TEST(AllocTable, ChargesEachTouchedBlockOnceInAnyOrder) {
  std::minstd_rand random(3);
  for (int round = 0; round < 20; ++round) {
    Table t;
    std::map<std::uint64_t, std::uint64_t> live;
    std::uint64_t charged = 0;
    for (int step = 0; step < 3000; ++step) {
      if (live.empty() || random() % 5 < 3) {
        const std::uint64_t size =
            random() % 4 == 0 ? 1 + random() % (9 << 20) : 1 + random() % (200 << 10);
        const std::uint64_t address = kBase + random() % (400 << 20) / 256 * 256;
        const auto next = live.lower_bound(address);
        if (next != live.end() && next->first < address + size) continue;
        if (next != live.begin() && std::prev(next)->first + std::prev(next)->second > address)
          continue;
        charged += t.Insert(address, Linear(size));
        live[address] = size;
      } else {
        auto it = live.begin();
        std::advance(it, random() % live.size());
        charged -= t.Free(it->first);
        live.erase(it);
      }
      if (step % 100 != 0) continue;
      std::set<std::uint64_t> blocks;
      for (const auto& [address, size] : live) {
        for (std::uint64_t b = address >> kBlockShift; b <= (address + size - 1) >> kBlockShift;
             ++b)
          blocks.insert(b);
      }
      ASSERT_EQ(charged, blocks.size() * kBlockBytes);
      ASSERT_TRUE(t.table->IsValid());
    }
    while (!live.empty()) {
      charged -= t.Free(live.begin()->first);
      live.erase(live.begin());
    }
    ASSERT_EQ(charged, 0u);
  }
}

TEST(AllocTable, HoldsManyInAnyFreeOrder) {
  Table t;
  std::vector<std::uint64_t> addresses;
  for (std::uint64_t i = 0; i < 50000; ++i) addresses.push_back(kBase + i * 4096);
  std::uint64_t charged = 0;
  for (const std::uint64_t a : addresses) charged += t.Insert(a, Linear(4096));
  EXPECT_EQ(charged, (50000 * 4096 + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  EXPECT_TRUE(t.table->IsValid());
  std::shuffle(addresses.begin(), addresses.end(), std::minstd_rand(1));
  for (const std::uint64_t a : addresses) charged -= t.Free(a);
  EXPECT_EQ(charged, 0u);
  EXPECT_TRUE(t.table->IsValid());
}

// An entry of a shared block is one word until an allocation comes that needs two.
TEST(AllocTable, RemembersAnySizeBesideAnyOther) {
  std::minstd_rand random(11);
  for (const unsigned most_bits : {20u, 23u, 24u, 44u}) {
    Table t;
    std::map<std::uint64_t, Allocation> live;
    for (int step = 0; step < 4000; ++step) {
      const std::uint64_t address = kBase + random() % 3 * kBlockBytes + random() % 512 * 64;
      if (const auto at = live.find(address); at != live.end()) {
        Allocation found;
        ASSERT_TRUE(t.table->Take(address, &found));
        EXPECT_EQ(found.size, at->second.size);
        EXPECT_EQ(found.owner, at->second.owner);
        EXPECT_EQ(found.card, at->second.card);
        EXPECT_EQ(found.kind, Kind::kArray);
        ASSERT_EQ(t.table->CloseBlocks(address, found), found.size);
        live.erase(at);
      } else {
        const std::uint64_t size =
            (std::uint64_t{random()} << 20 ^ random()) >> random() % 40 & ((1ull << most_bits) - 1);
        Allocation a = Linear(size, random() % kMaxOwners, random() % 16);
        a.kind = Kind::kArray;
        ASSERT_EQ(t.Insert(address, a), size);
        live[address] = a;
      }
      if (step % 100 == 0) {
        ASSERT_TRUE(t.table->IsValid());
        ASSERT_EQ(t.table->Live(), live.size());
      }
    }
    for (const auto& [address, a] : live) EXPECT_EQ(t.Free(address), a.size);
    EXPECT_TRUE(t.table->IsValid());
  }
}

TEST(AllocTable, AReplacedEntryMayNeedMoreRoomThanTheOld) {
  Table t;
  Allocation small = Linear(100), large = Linear(kMaxAllocation, 2);
  small.kind = large.kind = Kind::kArray;
  for (std::uint64_t i = 0; i < 7; ++i) t.Insert(kBase + 64 + i * 64, small);
  std::uint64_t opened = 0, stale_bytes = 0;
  Allocation stale, found;
  ASSERT_TRUE(t.table->Insert(kBase + 128, large, &opened, &stale, &stale_bytes));
  EXPECT_EQ(stale_bytes, 100u);
  ASSERT_TRUE(t.table->Find(kBase + 128, &found));
  EXPECT_EQ(found.size, kMaxAllocation);
  ASSERT_TRUE(t.table->Find(kBase + 64, &found));
  EXPECT_EQ(found.size, 100u);
  EXPECT_EQ(t.table->Live(), 7u);
  EXPECT_TRUE(t.table->IsValid());
}

TEST(AllocTable, AnEmptiedBlockIsAsNew) {
  Table t;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 100; ++i) t.Insert(kBase + i * 256, Linear(256));
    for (std::uint64_t i = 0; i < 100; ++i) t.Free(kBase + i * 256);
    EXPECT_EQ(t.Insert(kBase + kBlockBytes, Linear(4096)), kBlockBytes);
    EXPECT_TRUE(t.table->IsValid());
    EXPECT_EQ(t.Free(kBase + kBlockBytes), kBlockBytes);
    EXPECT_EQ(t.table->Live(), 0u);
  }
}

TEST(AllocTable, ThreadsThatShareBlocks) {
  Table t;
  std::atomic<std::int64_t> charged = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 8; ++n) {
    threads.emplace_back([&, n] {
      std::minstd_rand random(n + 1);
      std::vector<std::uint64_t> mine;
      for (int i = 0; i < 20000; ++i) {
        if (mine.size() < 50 || random() % 2 == 0) {
          const std::uint64_t address =
              kBase + (random() % 4000 * 8 + n) * 4096;  // own addresses, common blocks
          Allocation present;
          if (t.table->Find(address, &present)) continue;
          charged += static_cast<std::int64_t>(t.Insert(address, Linear(4096)));
          mine.push_back(address);
        } else {
          const std::size_t which = random() % mine.size();
          charged -= static_cast<std::int64_t>(t.Free(mine[which]));
          mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(which));
        }
      }
      for (const std::uint64_t a : mine) charged -= static_cast<std::int64_t>(t.Free(a));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(charged, 0);
  EXPECT_EQ(t.table->Live(), 0u);
  EXPECT_TRUE(t.table->IsValid());
}

}  // namespace
}  // namespace tessera::fence
