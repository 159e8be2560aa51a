// The contexts of this process: which card each is on and what it was charged for itself.
//
// Thread safety: every function from any thread; lookups take no lock.
// Invariant: record 0 is never used, so that an allocation's owner 0 means "no context".
#pragma once

#include <cstdint>

#include "memory/turn.h"
#include "real.h"
#include "slice/cards.h"

namespace tessera::fence {

// Where a call of the calling thread would allocate.
struct Place {
  int card = kUnknownCard;
  std::uint32_t context =
      0;  // record of the current context, 0 if there is none or no room for a record
  CUdevice device = -1;
};

// Of the current context. kUnknownCard when the thread has none: the driver will say so itself.
Place CurrentPlace();
// Of a context that need not be current.
Place PlaceOf(CUcontext context);
// The record of a live context, 0 if it has none.
std::uint32_t ContextRecord(CUcontext context);
// Bytes that the context was charged for itself (creation, modules, heap).
void AddContextBytes(std::uint32_t record, std::uint64_t bytes);
std::uint64_t ContextBytes(std::uint32_t record);
std::uint64_t TakeContextBytes(std::uint32_t record, std::uint64_t most);
// Adds what may be negative; never below 0.
void CorrectContextBytes(std::uint32_t record, std::int64_t bytes);
// True once for each context: the caller charges its creation.
bool ClaimContextCost(std::uint32_t record);
// The caller could not charge it.
void UnclaimContextCost(std::uint32_t record);
// A context that a call has just made or, where it is the primary one, handed out again. Its
// record.
std::uint32_t NoteContext(CUcontext context, CUdevice device, bool primary);
// Contexts that no call seen here has made are primary ones (the runtime's private tables retain
// them too).
std::uint32_t PrimaryRecord(CUdevice device);
bool PrimaryIsKnown(CUdevice device);
void ForgetPrimaryOf(CUdevice device);
// The old usage count beyond creation; the count after the change.
std::int32_t AddAttachment(std::uint32_t record, std::int32_t change);
// Before the driver ends a context: its handle leads nowhere any more, since another thread may be
// given it before this one has noted the end. ForgetContext of the result once it is gone,
// RelinkContext where the driver did not end it.
std::uint32_t UnlinkContext(CUcontext context);
void RelinkContext(std::uint32_t record, CUcontext context);
// The context is gone: everything that it held is refunded. Its record may be used again.
void ForgetContext(std::uint32_t record);

// Calls that make, hand out or end the primary context of a device take turns, as they do in the
// driver: what one has seen of the context is still so when it notes the outcome. The wait is
// bounded.
class PrimaryTurn {
 public:
  explicit PrimaryTurn(CUdevice device);

 private:
  Turn turn_;
};

namespace detail {
struct ContextRecord {
  std::uint64_t key;  // atomic; the CUcontext, 0 = free, or on its way out
  std::int32_t card;
  std::int32_t device;
  std::uint64_t bytes;         // atomic
  std::uint32_t cost_claimed;  // atomic
  std::uint32_t own;           // atomic; made by cuCtxCreate, so not primary
  std::int32_t attached;       // atomic
  std::uint32_t next;          // of the records that left together
};
inline constexpr std::uint32_t kRecords = 1024;  // a power of two, below kMaxOwners
extern ContextRecord g_records[kRecords];
extern std::uint32_t g_last;  // atomic; record of the current context of the last call

Place PlaceOfAnother(CUcontext context);

// CurrentPlace() where every nanosecond counts: a result in registers would be put together in
// memory of parts that were written just before.
[[gnu::always_inline]] inline Place CurrentPlaceInline() {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return {};
  // Mostly the context of the last call: its record is checked, not trusted.
  const std::uint32_t last = __atomic_load_n(&g_last, __ATOMIC_RELAXED);
  const ContextRecord& record = g_records[last];
  if (context != nullptr && __atomic_load_n(&record.key, __ATOMIC_ACQUIRE) ==
                                reinterpret_cast<std::uint64_t>(context)) [[likely]] {
    return {__atomic_load_n(&record.card, __ATOMIC_RELAXED), last,
            __atomic_load_n(&record.device, __ATOMIC_RELAXED)};
  }
  return PlaceOfAnother(context);
}
}  // namespace detail

}  // namespace tessera::fence
