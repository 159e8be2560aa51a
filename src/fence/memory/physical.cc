#include "memory/physical.h"

#include "charge/charge.h"
#include "memory/flat_map.h"
#include "memory/spin_lock.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

struct Record {
  std::uint64_t bytes = 0;
  std::int32_t card = 0;
  std::uint32_t references = 0;  // handles (each value once) and mappings
};
struct Handle {
  std::uint32_t record = 0;
  std::uint32_t count = 0;  // references that the program holds through this value
};
struct Mapping {
  std::uint64_t bytes = 0;
  std::uint32_t record = 0;
};

SpinLock g_lock;
FlatMap<Record> g_records;  // by number, from 1
FlatMap<Handle> g_handles;
FlatMap<Mapping> g_mappings;
std::uint32_t g_last_record = 0;

class Guard {
 public:
  Guard() : held_(g_lock.Lock()) {}
  ~Guard() {
    if (held_) g_lock.Unlock();
  }
  explicit operator bool() const { return held_; }

 private:
  bool held_;
};

void Reset() {
  g_lock = SpinLock();
  g_records.Reset();
  g_handles.Reset();
  g_mappings.Reset();
}

// One reference fewer; what is to be refunded, with the lock held.
Record Drop(std::uint32_t number) {
  Record* record = g_records.Find(number);
  if (record == nullptr || --record->references != 0) return {};
  const Record gone = *record;
  g_records.Erase(number);
  return gone;
}

void RefundRecord(const Record& gone) { Refund(gone.card, Kind::kVmm, gone.bytes); }

}  // namespace

bool AddPhysical(std::uint64_t handle, int card, std::uint64_t bytes) {
  ResetOnFork(Reset);
  Record stale;
  bool done = false;
  {
    Guard guard;
    if (!guard) return false;
    if (const Handle* old = g_handles.Find(handle); old != nullptr) stale = Drop(old->record);
    do {
      ++g_last_record;
    } while (g_last_record == 0 || g_records.Find(g_last_record) != nullptr);
    done = g_records.Insert(g_last_record, {bytes, card, 1}) != nullptr &&
           g_handles.Insert(handle, {g_last_record, 1}) != nullptr;
    if (!done) g_records.Erase(g_last_record);
  }
  RefundRecord(stale);
  return done;
}

void RetainPhysical(std::uint64_t handle, std::uint64_t address) {
  Guard guard;
  if (!guard) return;
  if (Handle* known = g_handles.Find(handle); known != nullptr) {
    ++known->count;
    return;
  }
  const Mapping* mapping = g_mappings.Find(address);
  if (mapping == nullptr) {
    const std::uint64_t base = g_mappings.FindIf([address](std::uint64_t start, const Mapping& m) {
      return address >= start && address - start < m.bytes;
    });
    mapping = g_mappings.Find(base);
  }
  if (mapping == nullptr) return;
  Record* record = g_records.Find(mapping->record);
  if (record != nullptr && g_handles.Insert(handle, {mapping->record, 1}) != nullptr)
    ++record->references;
}

Released BeginRelease(std::uint64_t handle) {
  Guard guard;
  Handle* known = guard ? g_handles.Find(handle) : nullptr;
  if (known == nullptr) return {};
  const std::uint32_t record = known->record;
  if (--known->count > 0) return {true, 0};
  g_handles.Erase(handle);
  return {true, record};
}

void UndoRelease(std::uint64_t handle, const Released& released) {
  Guard guard;
  if (!guard || !released.known) return;
  if (Handle* known = g_handles.Find(handle); known != nullptr) {
    ++known->count;
  } else if (released.record != 0) {
    g_handles.Insert(handle, {released.record, 1});
  }
}

void EndRelease(const Released& released) {
  if (released.record == 0) return;
  Record gone;
  {
    Guard guard;
    if (guard) gone = Drop(released.record);
  }
  RefundRecord(gone);
}

void MapPhysical(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle) {
  Guard guard;
  if (!guard) return;
  const Handle* known = g_handles.Find(handle);
  Record* record = known == nullptr ? nullptr : g_records.Find(known->record);
  if (record != nullptr && g_mappings.Insert(address, {bytes, known->record}) != nullptr)
    ++record->references;
}

void UnmapPhysical(std::uint64_t address, std::uint64_t bytes) {
  for (;;) {
    Record gone;
    {
      Guard guard;
      if (!guard || bytes == 0) return;
      // Mappings follow one another without a gap, except where unknown ones (imported memory)
      // stand between.
      std::uint64_t base = address;
      if (g_mappings.Find(address) == nullptr) {
        base = g_mappings.FindIf([&](std::uint64_t start, const Mapping&) {
          return start >= address && start - address < bytes;
        });
      }
      const Mapping* mapping = g_mappings.Find(base);
      if (mapping == nullptr) return;
      const Mapping taken = *mapping;
      g_mappings.Erase(base);
      gone = Drop(taken.record);
      if (base == address) {
        const std::uint64_t step = taken.bytes < bytes ? taken.bytes : bytes;
        address += step;
        bytes -= step;
      }
    }
    RefundRecord(gone);
  }
}

}  // namespace tessera::fence
