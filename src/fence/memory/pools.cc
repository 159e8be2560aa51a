#include "memory/pools.h"

#include "memory/live.h"
#include "memory/measured.h"
#include "memory/own_usage.h"
#include "memory/pool_alloc.h"
#include "memory/spin_lock.h"
#include "os/os.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kRecords = kMaxOwners;          // pools alive at once + 1: docs/limits.md
constexpr std::uint64_t kIdle = ~std::uint64_t{0};      // a record that may be used again
constexpr std::uint64_t kNoHandle = ~std::uint64_t{1};  // its handle may be another pool's by now
// Longer than the driver takes to trim a pool; then who destroys one waits no longer.
constexpr std::uint64_t kPatienceNs = 5'000'000'000;
// Destroyed: its last allocations are still there. Ended: they are gone.
enum State : std::uint32_t { kCharged, kNotCharged, kGoing, kDestroyed, kEnded };

struct Pool {
  std::uint64_t key;      // atomic; the CUmemoryPool, 0 = free
  std::int32_t card;      // atomic
  std::uint32_t state;    // atomic
  std::uint32_t in_use;   // atomic; threads that are asking the driver about it unbidden
  std::uint32_t dirty;    // atomic; something was freed since the last reading
  std::uint32_t managed;  // atomic; of managed memory
  std::int64_t live;      // atomic; allocations not yet freed
  Measured charge;
};
constinit Pool g_pools[kRecords] = {};
std::uint32_t g_dirty = 0;        // atomic
std::uint32_t g_any_managed = 0;  // atomic
SpinLock g_making;

void Reset() {
  // Behind the first that was never used there are no others.
  for (std::uint32_t i = 1; i < kRecords && g_pools[i].key != 0; ++i) g_pools[i] = Pool();
  g_dirty = 0;
  g_any_managed = 0;
  g_making = SpinLock();
}

int CardOf(const Pool& pool) { return __atomic_load_n(&pool.card, __ATOMIC_RELAXED); }

// While one lives, the pool's handle is good: who destroys the pool waits for it.
class Use {
 public:
  explicit Use(Pool& pool) : pool_(pool) {
    __atomic_add_fetch(&pool_.in_use, 1u, __ATOMIC_SEQ_CST);
    usable_ = __atomic_load_n(&pool_.state, __ATOMIC_SEQ_CST) == kCharged;
  }
  ~Use() { __atomic_sub_fetch(&pool_.in_use, 1u, __ATOMIC_RELEASE); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return usable_; }

 private:
  Pool& pool_;
  bool usable_;
};

// The last of a destroyed pool, once. `late`: allocations have outlived it, and what it still held
// only the driver knew. False when there are some still.
bool EndIfEmpty(Pool& pool, bool late) {
  std::uint32_t state = kDestroyed;
  if (__atomic_load_n(&pool.live, __ATOMIC_SEQ_CST) > 0 ||
      !__atomic_compare_exchange_n(&pool.state, &state, static_cast<std::uint32_t>(kEnded), false,
                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    return false;
  const int card = CardOf(pool);
  if (late && card >= 0) {
    BeforeGivingBack(card);
    MarkUnsettled(card);
  }
  pool.charge.FollowAlways(card, Kind::kPool, pool.charge.TakeNumber(), 0);
  if (card >= 0 && __atomic_load_n(&pool.managed, __ATOMIC_RELAXED) != 0) MarkUnsettled(card);
  __atomic_store_n(&pool.key, kIdle, __ATOMIC_RELEASE);
  return true;
}

// `from` has become kDestroyed: allocations may outlive the pool.
void Retire(Pool& pool, State from) {
  std::uint32_t state = from;
  __atomic_store_n(&pool.key, kNoHandle, __ATOMIC_RELEASE);
  if (__atomic_compare_exchange_n(&pool.state, &state, static_cast<std::uint32_t>(kDestroyed),
                                  false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
      !EndIfEmpty(pool, false) && CardOf(pool) >= 0)
    MarkUnsettled(CardOf(pool));
}

std::uint32_t Lookup(std::uint64_t key) {
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    const std::uint64_t found = __atomic_load_n(&g_pools[i].key, __ATOMIC_ACQUIRE);
    if (found == key) return i;
    if (found == 0) return 0;
  }
  return 0;
}

// Under a lock, so that threads that discover a pool together make one record of it. `fresh`: the
// driver has just handed the handle out, so a record that still bears it is of a pool that is gone.
std::uint32_t Make(std::uint64_t key, int card, State state, bool fresh) {
  ResetOnFork(Reset);
  if (!g_making.Lock()) return 0;
  std::uint32_t record = Lookup(key);
  const std::uint32_t former = fresh ? record : 0;
  if (former != 0) {
    __atomic_store_n(&g_pools[former].key, kNoHandle, __ATOMIC_RELEASE);
    record = 0;
  }
  for (std::uint32_t i = 1; record == 0 && i < kRecords; ++i) {
    Pool& pool = g_pools[i];
    const std::uint64_t found = __atomic_load_n(&pool.key, __ATOMIC_ACQUIRE);
    if (found != 0 && found != kIdle) continue;
    __atomic_store_n(&pool.card, card, __ATOMIC_RELAXED);
    __atomic_store_n(&pool.dirty, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&pool.managed, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&pool.live, std::int64_t{0}, __ATOMIC_RELAXED);
    __atomic_store_n(&pool.state, static_cast<std::uint32_t>(state), __ATOMIC_RELEASE);
    __atomic_store_n(&pool.key, key, __ATOMIC_RELEASE);
    record = i;
  }
  g_making.Unlock();
  // Its end was not seen here, or another thread is about to note it.
  if (former != 0) Retire(g_pools[former], kCharged);
  return record;
}

std::uint32_t StateOf(std::uint32_t record) {
  return __atomic_load_n(&g_pools[record].state, __ATOMIC_ACQUIRE);
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

// The caller uses it.
void SettleUsed(Pool& pool) {
  __atomic_store_n(&pool.dirty, 0u, __ATOMIC_RELAXED);
  const std::uint64_t number = pool.charge.TakeNumber();
  std::uint64_t reserved = 0;
  if (!Reserved(pool, &reserved)) return;
  pool.charge.FollowAlways(CardOf(pool), Kind::kPool, number, reserved);
  // What it holds in vain goes at a later synchronisation, once the work that was to use it is
  // done.
  cuuint64_t used = 0;
  if (real::cuMemPoolGetAttribute(Handle(pool), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
          CUDA_SUCCESS &&
      used < reserved)
    MarkDirty(pool);
}

void Settle(Pool& pool) {
  if (const Use use(pool); use) SettleUsed(pool);
}

template <typename Visit>
void ForEach(Visit&& visit) {
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    const std::uint64_t key = __atomic_load_n(&g_pools[i].key, __ATOMIC_ACQUIRE);
    if (key == 0) return;
    if (key != kNoHandle && key != kIdle) visit(g_pools[i]);
  }
}

// Before a charge is refused: what pools hold in vain goes back to the card.
void GiveBack(int card) {
  ForEach([card](Pool& pool) {
    if (CardOf(pool) != card || pool.charge.charged() == 0) return;
    const Use use(pool);
    if (!use) return;
    real::cuMemPoolTrimTo(Handle(pool), 0);
    SettleUsed(pool);
  });
}

// A pool that no call seen here has made is the default one of some card, or of its managed memory:
// whichever the stream of its first allocation is on.
struct Home {
  int card;
  bool managed = false;
};
Home HomeOf(CUmemoryPool pool, int otherwise) {
  int count = 0;
  CUmemoryPool found = nullptr;
  if (real::cuDeviceGetCount(&count) != CUDA_SUCCESS) return {otherwise};
  for (CUdevice device = 0; device < count; ++device) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    if ((real::cuDeviceGetDefaultMemPool(&found, device) == CUDA_SUCCESS && found == pool) ||
        (real::cuDeviceGetMemPool(&found, device) == CUDA_SUCCESS && found == pool))
      return {CardOfDevice(device)};
    if (real::cuMemGetDefaultMemPool(&found, &location, CU_MEM_ALLOCATION_TYPE_MANAGED) ==
            CUDA_SUCCESS &&
        found == pool)
      return {CardOfDevice(device), true};
  }
  return {otherwise};
}

void NoteManaged(std::uint32_t record) {
  __atomic_store_n(&g_pools[record].managed, 1u, __ATOMIC_RELEASE);
  __atomic_store_n(&g_any_managed, 1u, __ATOMIC_RELEASE);
}

}  // namespace

std::uint64_t ManagedPoolBytes(int card) {
  std::uint64_t sum = 0;
  if (__atomic_load_n(&g_any_managed, __ATOMIC_ACQUIRE) == 0) return 0;
  // Destroyed ones too: their last allocations are charged until they go.
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    const Pool& pool = g_pools[i];
    if (__atomic_load_n(&pool.key, __ATOMIC_ACQUIRE) == 0) break;
    if (CardOf(pool) == card && __atomic_load_n(&pool.managed, __ATOMIC_ACQUIRE) != 0)
      sum += pool.charge.charged();
  }
  return sum;
}

bool PoolsAgree(int card) {
  bool agree = true;
  ForEach([card, &agree](Pool& pool) {
    const Use use(pool);
    if (CardOf(pool) != card || !use) return;
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
    const Home home = HomeOf(pool, card);
    if (home.card < 0) return 0;
    record = Make(key, home.card, kCharged, false);
    if (record != 0 && home.managed) NoteManaged(record);
    OnPressure(GiveBack);
  }
  return record != 0 && StateOf(record) == kCharged ? record : 0;
}

void NoteNewPool(CUmemoryPool pool, int card, PoolMemory memory) {
  if (card < 0) return;
  const std::uint32_t record = Make(reinterpret_cast<std::uint64_t>(pool), card, kCharged, true);
  if (record != 0 && memory == PoolMemory::kManaged) NoteManaged(record);
  OnPressure(GiveBack);
}
void NoteImportedPool(CUmemoryPool pool) {
  Make(reinterpret_cast<std::uint64_t>(pool), kForeignCard, kNotCharged, true);
}
void NoteHostPool(CUmemoryPool pool) {
  Make(reinterpret_cast<std::uint64_t>(pool), kForeignCard, kNotCharged, true);
}

bool IsUncharged(CUmemoryPool pool) {
  const std::uint32_t record = Lookup(reinterpret_cast<std::uint64_t>(pool));
  return record != 0 && StateOf(record) == kNotCharged;
}

int PoolCard(std::uint32_t record) { return CardOf(g_pools[record]); }

void PoolPromised(std::uint32_t record, std::uint64_t reserved) {
  g_pools[record].charge.Promise(reserved);
}
void PoolWithdrawn(std::uint32_t record, std::uint64_t reserved) {
  g_pools[record].charge.Withdraw(PoolCard(record), Kind::kPool, reserved);
}

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
    PoolWithdrawn(record, reserved_before);
    return false;
  }
  if (!pool.charge.Follow(CardOf(pool), Kind::kPool, number, reserved, reserved_before))
    return false;
  __atomic_fetch_add(&pool.live, std::int64_t{1}, __ATOMIC_RELAXED);
  return true;
}

void PoolUndone(std::uint32_t record) {
  Pool& pool = g_pools[record];
  const Use use(pool);
  if (!use) return;
  real::cuMemPoolTrimTo(Handle(pool), 0);
  SettleUsed(pool);
}

void PoolFreed(std::uint32_t record) {
  if (record == 0) return;
  Pool& pool = g_pools[record];
  __atomic_sub_fetch(&pool.live, std::int64_t{1}, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool.state, __ATOMIC_SEQ_CST) >= kDestroyed) {
    EndIfEmpty(pool, true);
    return;
  }
  PoolMayShrink(record);
}

void PoolMayShrink(std::uint32_t record) { MarkDirty(g_pools[record]); }

bool PoolGoes(std::uint32_t record) {
  if (record == 0) return false;
  Pool& pool = g_pools[record];
  std::uint32_t state = kCharged;
  if (!__atomic_compare_exchange_n(&pool.state, &state, static_cast<std::uint32_t>(kGoing), false,
                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    return false;
  const std::uint64_t deadline = os::MonotonicNs() + kPatienceNs;
  while (__atomic_load_n(&pool.in_use, __ATOMIC_SEQ_CST) != 0 && os::MonotonicNs() < deadline)
    os::SleepNs(20'000);
  return true;
}

void PoolStays(std::uint32_t record) {
  std::uint32_t state = kGoing;
  __atomic_compare_exchange_n(&g_pools[record].state, &state, static_cast<std::uint32_t>(kCharged),
                              false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void PoolDestroyed(std::uint32_t record) { Retire(g_pools[record], kGoing); }

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
    const Use use(pool);
    if (CardOf(pool) != card || !use) return;
    const std::uint64_t number = pool.charge.TakeNumber();
    std::uint64_t reserved = 0;
    if (!Reserved(pool, &reserved)) reserved = 0;
    pool.charge.FollowAlways(CardOf(pool), Kind::kPool, number, reserved);
  });
}

}  // namespace tessera::fence
