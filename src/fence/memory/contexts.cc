#include "memory/contexts.h"

#include "charge/charge.h"
#include "memory/live.h"
#include "memory/packed.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kRecords = 1024;  // a power of two, below kMaxOwners

struct Record {
  std::uint64_t
      key;  // atomic; the CUcontext, 0 = free, kBeingMade while its other fields are written
  std::int32_t card;
  std::int32_t device;
  std::uint64_t bytes;         // atomic
  std::uint32_t cost_claimed;  // atomic
  std::uint32_t own;           // atomic; made by cuCtxCreate, so not primary
  std::int32_t attached;       // atomic
};
Record g_records[kRecords];
std::uint32_t g_last = 0;  // atomic; record of the current context of the last call
constexpr std::uint64_t kBeingMade = 1;
constexpr std::uint32_t kLongestProbe = 64;

std::uint32_t Home(std::uint64_t key) {
  return static_cast<std::uint32_t>((key * 0x9e3779b97f4a7c15u) >> 40) & (kRecords - 1);
}

std::uint32_t Lookup(std::uint64_t key) {
  for (std::uint32_t k = 0, i = Home(key); k < kLongestProbe; ++k, i = (i + 1) & (kRecords - 1)) {
    if (i != 0 && __atomic_load_n(&g_records[i].key, __ATOMIC_ACQUIRE) == key) return i;
  }
  return 0;
}

std::uint32_t Make(std::uint64_t key, int card, CUdevice device) {
  for (std::uint32_t k = 0, i = Home(key); k < kLongestProbe; ++k, i = (i + 1) & (kRecords - 1)) {
    Record& r = g_records[i];
    std::uint64_t expected = 0;
    if (i == 0 || !__atomic_compare_exchange_n(&r.key, &expected, kBeingMade, false,
                                               __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      continue;
    }
    r.card = card;
    r.device = device;
    __atomic_store_n(&r.bytes, std::uint64_t{0}, __ATOMIC_RELAXED);
    __atomic_store_n(&r.cost_claimed, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&r.own, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&r.attached, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&r.key, key, __ATOMIC_RELEASE);
    return i;
  }
  return 0;
}

// A forked child has no context of its parent.
void Reset() {
  for (Record& record : g_records) record = Record();
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
  // Two threads may both make a record: allocations of either are found, since both are forgotten
  // with the context.
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
  return {g_records[record].card, record, g_records[record].device};
}

Place CurrentPlace() {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return {};
  // Mostly the context of the last call: its record is checked, not trusted.
  const std::uint32_t last = __atomic_load_n(&g_last, __ATOMIC_RELAXED);
  if (context != nullptr && __atomic_load_n(&g_records[last].key, __ATOMIC_ACQUIRE) ==
                                reinterpret_cast<std::uint64_t>(context)) {
    return {g_records[last].card, last, g_records[last].device};
  }
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

std::uint32_t NoteContext(CUcontext context, CUdevice device, bool primary) {
  const auto key = reinterpret_cast<std::uint64_t>(context);
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
    if (__atomic_load_n(&g_records[i].key, __ATOMIC_ACQUIRE) > kBeingMade &&
        g_records[i].device == device &&
        __atomic_load_n(&g_records[i].own, __ATOMIC_RELAXED) == 0) {
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

void ForgetContext(std::uint32_t record) {
  if (record == 0) return;
  const std::uint64_t key = __atomic_load_n(&g_records[record].key, __ATOMIC_ACQUIRE);
  // A record is used again only once nothing in the tables names it.
  while (record != 0) {
    // Allocations from pools carry the number of their pool, which outlives contexts.
    LiveTable().TakeAll(record, ~(1u << static_cast<unsigned>(Kind::kPool)), RefundGone, nullptr);
    HandleTable().TakeAll(record, ~0u, RefundGone, nullptr);
    Refund(g_records[record].card, Kind::kArray, UnpackAll(record));
    Refund(g_records[record].card, Kind::kContext, TakeContextBytes(record, UINT64_MAX));
    __atomic_store_n(&g_records[record].key, std::uint64_t{0}, __ATOMIC_RELEASE);
    record = Lookup(key);
  }
}

}  // namespace tessera::fence
