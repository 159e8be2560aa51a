#include "memory/pools.h"

#include "memory/live.h"
#include "memory/measured.h"
#include "memory/own_usage.h"
#include "memory/pool_alloc.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kRecords = 1024;  // pools alive at once that are told apart
constexpr std::uint64_t kBeingMade = 1;
enum State : std::uint32_t { kCharged = 0, kNotCharged = 1, kDestroyed = 2 };

struct Pool {
  std::uint64_t key;  // atomic; the CUmemoryPool, 0 = free
  std::int32_t card;
  std::uint32_t state;  // atomic
  std::uint32_t dirty;  // atomic; something was freed since the last reading
  std::int64_t live;    // atomic; allocations not yet freed
  Measured charge;
};
constinit Pool g_pools[kRecords] = {};
std::uint32_t g_dirty = 0;  // atomic

void Reset() {
  for (Pool& pool : g_pools) pool = Pool();
  g_dirty = 0;
}

std::uint32_t Lookup(std::uint64_t key) {
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    const std::uint64_t found = __atomic_load_n(&g_pools[i].key, __ATOMIC_ACQUIRE);
    if (found == key) return i;
    if (found == 0) return 0;
  }
  return 0;
}

// Records are never given up in the middle: a destroyed pool's record is renamed when its handle
// comes back.
std::uint32_t Make(std::uint64_t key, int card, State state) {
  ResetOnFork(Reset);
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    Pool& pool = g_pools[i];
    std::uint64_t expected = 0;
    if (__atomic_compare_exchange_n(&pool.key, &expected, kBeingMade, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      pool.card = card;
      pool.state = state;
      __atomic_store_n(&pool.key, key, __ATOMIC_RELEASE);
      return i;
    }
    if (expected == key) return i;
    constexpr std::uint64_t kIdle = ~std::uint64_t{0};
    expected = kIdle;
    if (__atomic_compare_exchange_n(&pool.key, &expected, kBeingMade, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      pool.card = card;
      __atomic_store_n(&pool.state, static_cast<std::uint32_t>(state), __ATOMIC_RELAXED);
      __atomic_store_n(&pool.dirty, 0u, __ATOMIC_RELAXED);
      __atomic_store_n(&pool.live, std::int64_t{0}, __ATOMIC_RELAXED);
      __atomic_store_n(&pool.key, key, __ATOMIC_RELEASE);
      return i;
    }
  }
  return 0;
}

CUmemoryPool Handle(const Pool& pool) {
  return reinterpret_cast<CUmemoryPool>(__atomic_load_n(&pool.key, __ATOMIC_ACQUIRE));
}

bool Reserved(const Pool& pool, std::uint64_t* bytes) {
  cuuint64_t reserved = 0;
  if (real::cuMemPoolGetAttribute(Handle(pool), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
      CUDA_SUCCESS)
    return false;
  *bytes = reserved;
  return true;
}

void MarkDirty(Pool& pool) {
  __atomic_store_n(&pool.dirty, 1u, __ATOMIC_RELAXED);
  if (__atomic_load_n(&g_dirty, __ATOMIC_RELAXED) == 0)
    __atomic_store_n(&g_dirty, 1u, __ATOMIC_RELEASE);
}

void Settle(Pool& pool) {
  if (__atomic_load_n(&pool.state, __ATOMIC_ACQUIRE) != kCharged) return;
  __atomic_store_n(&pool.dirty, 0u, __ATOMIC_RELAXED);
  const std::uint64_t number = pool.charge.TakeNumber();
  std::uint64_t reserved = 0;
  if (!Reserved(pool, &reserved)) return;
  pool.charge.FollowAlways(pool.card, Kind::kPool, number, reserved);
  // What it holds in vain goes at a later synchronisation, once the work that was to use it is
  // done.
  cuuint64_t used = 0;
  if (real::cuMemPoolGetAttribute(Handle(pool), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
          CUDA_SUCCESS &&
      used < reserved)
    MarkDirty(pool);
}

template <typename Visit>
void ForEach(Visit&& visit) {
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    const std::uint64_t key = __atomic_load_n(&g_pools[i].key, __ATOMIC_ACQUIRE);
    if (key == 0) return;
    if (key != kBeingMade && key != ~std::uint64_t{0}) visit(g_pools[i]);
  }
}

// Before a charge is refused: what pools hold in vain goes back to the card.
void GiveBack(int card) {
  ForEach([card](Pool& pool) {
    if (pool.card != card || __atomic_load_n(&pool.state, __ATOMIC_ACQUIRE) != kCharged) return;
    if (pool.charge.charged() == 0) return;
    real::cuMemPoolTrimTo(Handle(pool), 0);
    Settle(pool);
  });
}

}  // namespace

bool PoolsAgree(int card) {
  bool agree = true;
  ForEach([card, &agree](Pool& pool) {
    if (pool.card != card || __atomic_load_n(&pool.state, __ATOMIC_ACQUIRE) != kCharged) return;
    std::uint64_t reserved = 0;
    if (Reserved(pool, &reserved) && reserved != pool.charge.charged()) agree = false;
  });
  return agree;
}

std::uint32_t PoolRecord(CUmemoryPool pool, int card) {
  const auto key = reinterpret_cast<std::uint64_t>(pool);
  if (key == 0) return 0;
  std::uint32_t record = Lookup(key);
  if (record == 0 && card >= 0) {
    record = Make(key, card, kCharged);
    OnPressure(GiveBack);
  }
  return record != 0 && g_pools[record].state == kCharged ? record : 0;
}

void NoteImportedPool(CUmemoryPool pool) {
  Make(reinterpret_cast<std::uint64_t>(pool), kForeignCard, kNotCharged);
}
void NoteHostPool(CUmemoryPool pool) {
  Make(reinterpret_cast<std::uint64_t>(pool), kForeignCard, kNotCharged);
}

bool IsUncharged(CUmemoryPool pool) {
  const std::uint32_t record = Lookup(reinterpret_cast<std::uint64_t>(pool));
  return record != 0 && g_pools[record].state == kNotCharged;
}

int PoolCard(std::uint32_t record) { return g_pools[record].card; }

bool PoolIdle(std::uint32_t record, std::uint64_t bytes) {
  cuuint64_t reserved = 0, used = 0;
  const CUmemoryPool pool = Handle(g_pools[record]);
  return real::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
             CUDA_SUCCESS &&
         real::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
             CUDA_SUCCESS &&
         reserved >= used + bytes;
}

bool PoolGrew(std::uint32_t record, std::uint64_t reserved_before) {
  Pool& pool = g_pools[record];
  const std::uint64_t number = pool.charge.TakeNumber();
  std::uint64_t reserved = 0;
  if (!Reserved(pool, &reserved)) {
    Refund(pool.card, Kind::kPool, reserved_before);
    return false;
  }
  if (!pool.charge.Follow(pool.card, Kind::kPool, number, reserved, reserved_before)) return false;
  __atomic_fetch_add(&pool.live, std::int64_t{1}, __ATOMIC_RELAXED);
  return true;
}

void PoolUndone(std::uint32_t record) {
  Pool& pool = g_pools[record];
  real::cuMemPoolTrimTo(Handle(pool), 0);
  Settle(pool);
}

void PoolFreed(std::uint32_t record) {
  if (record == 0) return;
  Pool& pool = g_pools[record];
  const std::int64_t live = __atomic_sub_fetch(&pool.live, std::int64_t{1}, __ATOMIC_ACQ_REL);
  if (__atomic_load_n(&pool.state, __ATOMIC_ACQUIRE) == kDestroyed) {
    if (live > 0) return;
    BeforeGivingBack(pool.card);
    MarkUnsettled(pool.card);
    pool.charge.FollowAlways(pool.card, Kind::kPool, pool.charge.TakeNumber(), 0);
    __atomic_store_n(&pool.key, ~std::uint64_t{0}, __ATOMIC_RELEASE);
    return;
  }
  PoolMayShrink(record);
}

void PoolMayShrink(std::uint32_t record) { MarkDirty(g_pools[record]); }

void PoolDestroyed(std::uint32_t record) {
  Pool& pool = g_pools[record];
  __atomic_store_n(&pool.state, static_cast<std::uint32_t>(kDestroyed), __ATOMIC_RELEASE);
  if (__atomic_load_n(&pool.live, __ATOMIC_ACQUIRE) > 0) {
    // Its allocations outlive it; the handle's value may be given to another pool. What it still
    // holds only the driver knows.
    MarkUnsettled(pool.card);
    __atomic_store_n(&pool.key, ~std::uint64_t{1}, __ATOMIC_RELEASE);
    return;
  }
  pool.charge.FollowAlways(pool.card, Kind::kPool, pool.charge.TakeNumber(), 0);
  __atomic_store_n(&pool.key, ~std::uint64_t{0}, __ATOMIC_RELEASE);
}

void SettlePool(std::uint32_t record) { Settle(g_pools[record]); }

bool PoolsDirty() { return __atomic_load_n(&g_dirty, __ATOMIC_RELAXED) != 0; }

void SettleDirtyPools() {
  __atomic_store_n(&g_dirty, 0u, __ATOMIC_RELAXED);
  ForEach([](Pool& pool) {
    if (__atomic_load_n(&pool.dirty, __ATOMIC_RELAXED) != 0) Settle(pool);
  });
}

void SettlePoolsOf(int card) {
  ForEach([card](Pool& pool) {
    if (pool.card != card || __atomic_load_n(&pool.state, __ATOMIC_ACQUIRE) != kCharged) return;
    const std::uint64_t number = pool.charge.TakeNumber();
    std::uint64_t reserved = 0;
    if (!Reserved(pool, &reserved)) reserved = 0;
    pool.charge.FollowAlways(pool.card, Kind::kPool, number, reserved);
  });
}

}  // namespace tessera::fence
