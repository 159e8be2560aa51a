#include "memory/contexts.h"

#include "charge/charge.h"
#include "memory/libraries.h"
#include "memory/live.h"
#include "memory/packed.h"
#include "memory/physical.h"
#include "memory/spin_lock.h"
#include "os/os.h"

namespace tessera::fence {

namespace detail {
ContextRecord g_records[kRecords];
std::uint32_t g_last = 0;
}  // namespace detail

namespace {

using Record = detail::ContextRecord;
using detail::g_last;
using detail::g_records;
using detail::kRecords;
SpinLock g_making;
// The driver is about to end the context: its handle may come back at any moment.
constexpr std::uint64_t kLeaving = 1;
constexpr std::uint32_t kLongestProbe = 64;
constexpr int kDevices = 64;
std::uint64_t g_turns[kDevices];  // atomic; see memory/turn.h
// Longer than any driver takes to make or end a context.
constexpr std::uint64_t kLongestTurnNs = 10'000'000'000;

std::uint32_t Home(std::uint64_t key) {
  return static_cast<std::uint32_t>((key * 0x9e3779b97f4a7c15u) >> 40) & (kRecords - 1);
}

std::uint32_t Lookup(std::uint64_t key) {
  for (std::uint32_t k = 0, i = Home(key); k < kLongestProbe; ++k, i = (i + 1) & (kRecords - 1)) {
    if (i != 0 && __atomic_load_n(&g_records[i].key, __ATOMIC_ACQUIRE) == key) return i;
  }
  return 0;
}

// Under a lock, so that threads that discover a context together make one record of it.
std::uint32_t Make(std::uint64_t key, int card, CUdevice device) {
  if (!g_making.Lock()) return 0;
  std::uint32_t record = Lookup(key);
  for (std::uint32_t k = 0, i = Home(key); record == 0 && k < kLongestProbe;
       ++k, i = (i + 1) & (kRecords - 1)) {
    Record& r = g_records[i];
    if (i == 0 || __atomic_load_n(&r.key, __ATOMIC_ACQUIRE) != 0) continue;
    __atomic_store_n(&r.card, card, __ATOMIC_RELAXED);
    __atomic_store_n(&r.device, device, __ATOMIC_RELAXED);
    __atomic_store_n(&r.bytes, std::uint64_t{0}, __ATOMIC_RELAXED);
    __atomic_store_n(&r.cost_claimed, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&r.own, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&r.attached, 0, __ATOMIC_RELAXED);
    r.next = 0;
    __atomic_store_n(&r.key, key, __ATOMIC_RELEASE);
    record = i;
  }
  g_making.Unlock();
  ReviewLaunches();
  return record;
}

int CardOfRecord(std::uint32_t record) {
  return __atomic_load_n(&g_records[record].card, __ATOMIC_RELAXED);
}
CUdevice DeviceOfRecord(std::uint32_t record) {
  return __atomic_load_n(&g_records[record].device, __ATOMIC_RELAXED);
}

// A forked child has no context of its parent.
void Reset() {
  for (Record& record : g_records) record = Record();
  for (std::uint64_t& turn : g_turns) turn = 0;
  g_making = SpinLock();
}

Place PlaceOfNew(CUcontext context) {
  Place place;
  ResetOnFork(Reset);
  ForgetTablesOnFork();
  CUdevice device = -1;
  CUresult result = real::cuCtxGetDevice_v2(&device, context);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {  // before CUDA 13 only the current context can be asked
    CUcontext current = nullptr;
    if (real::cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) return place;
    result = real::cuCtxGetDevice(&device);
  }
  if (result != CUDA_SUCCESS) return place;
  place.device = device;
  place.card = CardOfDevice(device);
  if (place.card == kUnknownCard) return place;
  place.context = Make(reinterpret_cast<std::uint64_t>(context), place.card, device);
  return place;
}

void RefundGone(void*, const Allocation& allocation, std::uint64_t bytes) {
  if (allocation.kind == kPacked) return;  // with the others of its context
  Refund(static_cast<int>(allocation.card), allocation.kind, bytes);
}

}  // namespace

std::uint32_t ContextRecord(CUcontext context) {
  return context == nullptr ? 0 : Lookup(reinterpret_cast<std::uint64_t>(context));
}

Place PlaceOf(CUcontext context) {
  if (context == nullptr) return {};
  const std::uint32_t record = Lookup(reinterpret_cast<std::uint64_t>(context));
  if (record == 0) return PlaceOfNew(context);
  return {CardOfRecord(record), record, DeviceOfRecord(record)};
}

Place CurrentPlace() { return detail::CurrentPlaceInline(); }

Place detail::PlaceOfAnother(CUcontext context) {
  const Place place = PlaceOf(context);
  if (place.context != 0) __atomic_store_n(&g_last, place.context, __ATOMIC_RELAXED);
  return place;
}

void AddContextBytes(std::uint32_t record, std::uint64_t bytes) {
  if (record != 0) __atomic_fetch_add(&g_records[record].bytes, bytes, __ATOMIC_RELAXED);
}

std::uint64_t ContextBytes(std::uint32_t record) {
  return __atomic_load_n(&g_records[record].bytes, __ATOMIC_RELAXED);
}

std::uint64_t TakeContextBytes(std::uint32_t record, std::uint64_t most) {
  if (record == 0) return 0;
  std::uint64_t have = __atomic_load_n(&g_records[record].bytes, __ATOMIC_RELAXED), take;
  do {
    take = have < most ? have : most;
  } while (!__atomic_compare_exchange_n(&g_records[record].bytes, &have, have - take, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return take;
}

void CorrectContextBytes(std::uint32_t record, std::int64_t bytes) {
  if (bytes >= 0) {
    AddContextBytes(record, static_cast<std::uint64_t>(bytes));
  } else {
    TakeContextBytes(record, static_cast<std::uint64_t>(-bytes));
  }
}

bool ClaimContextCost(std::uint32_t record) {
  return record != 0 &&
         __atomic_exchange_n(&g_records[record].cost_claimed, 1u, __ATOMIC_RELAXED) == 0;
}

void UnclaimContextCost(std::uint32_t record) {
  if (record != 0) __atomic_store_n(&g_records[record].cost_claimed, 0u, __ATOMIC_RELAXED);
}

std::uint32_t NoteContext(CUcontext context, CUdevice device, bool primary) {
  const auto key = reinterpret_cast<std::uint64_t>(context);
  // A context that was made just now has taken over the handle of one whose end was not seen, or is
  // about to be noted.
  if (!primary) ForgetContext(UnlinkContext(context));
  std::uint32_t record = Lookup(key);
  if (record == 0) {
    ResetOnFork(Reset);
    ForgetTablesOnFork();
    record = Make(key, CardOfDevice(device), device);
  }
  if (record != 0 && !primary) __atomic_store_n(&g_records[record].own, 1u, __ATOMIC_RELAXED);
  return record;
}

std::uint32_t PrimaryRecord(CUdevice device) {
  for (std::uint32_t i = 1; i < kRecords; ++i) {
    if (__atomic_load_n(&g_records[i].key, __ATOMIC_ACQUIRE) > kLeaving &&
        DeviceOfRecord(i) == device && __atomic_load_n(&g_records[i].own, __ATOMIC_RELAXED) == 0) {
      return i;
    }
  }
  return 0;
}

bool PrimaryIsKnown(CUdevice device) {
  const std::uint32_t record = PrimaryRecord(device);
  return record != 0 && __atomic_load_n(&g_records[record].cost_claimed, __ATOMIC_RELAXED) != 0;
}

void ForgetPrimaryOf(CUdevice device) {
  for (std::uint32_t record = PrimaryRecord(device); record != 0; record = PrimaryRecord(device)) {
    ForgetContext(record);
  }
}

std::int32_t AddAttachment(std::uint32_t record, std::int32_t change) {
  return record == 0 ? 0
                     : __atomic_add_fetch(&g_records[record].attached, change, __ATOMIC_ACQ_REL);
}

std::uint32_t UnlinkContext(CUcontext context) {
  if (context == nullptr) return 0;
  const auto key = reinterpret_cast<std::uint64_t>(context);
  std::uint32_t first = 0;
  if (!g_making.Lock()) return 0;
  // More than one only where another thread looked for it while its end failed.
  for (std::uint32_t record = Lookup(key); record != 0; record = Lookup(key)) {
    g_records[record].next = first;
    __atomic_store_n(&g_records[record].key, kLeaving, __ATOMIC_RELEASE);
    first = record;
  }
  g_making.Unlock();
  return first;
}

void RelinkContext(std::uint32_t record, CUcontext context) {
  while (record != 0) {
    Record& r = g_records[record];
    record = r.next;
    r.next = 0;
    __atomic_store_n(&r.key, reinterpret_cast<std::uint64_t>(context), __ATOMIC_RELEASE);
  }
}

void ForgetContext(std::uint32_t record) {
  const bool any = record != 0;
  // A record is used again only once nothing in the tables names it.
  while (record != 0) {
    Record& r = g_records[record];
    const int card = CardOfRecord(record);
    // Allocations from pools carry the number of their pool, which outlives contexts.
    LiveTable().TakeAll(record, ~(1u << static_cast<unsigned>(Kind::kPool)), RefundGone, nullptr);
    HandleTable().TakeAll(record, ~0u, RefundGone, nullptr);
    UnbindContext(record);
    Refund(card, Kind::kArray, UnpackAll(record));
    Refund(card, Kind::kContext, TakeContextBytes(record, UINT64_MAX));
    ForgetLoadedIn(record);
    record = r.next;
    r.next = 0;
    __atomic_store_n(&r.key, std::uint64_t{0}, __ATOMIC_RELEASE);
  }
  if (any) ReviewLaunches();
}

PrimaryTurn::PrimaryTurn(CUdevice device) {
  if (device < 0 || device >= kDevices) return;
  ResetOnFork(Reset);
  turn_.Wait(&g_turns[device], kLongestTurnNs);
}

}  // namespace tessera::fence
