#include "memory/physical.h"

#include "charge/charge.h"
#include "memory/flat_map.h"
#include "memory/spin_lock.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

struct Record {
  std::uint64_t bytes = 0;
  std::int32_t card = 0;         // -1: a multicast object
  std::uint32_t references = 0;  // handles (each value once), mappings, bindings, calls under way
  bool exported = false;
};
struct Handle {
  std::uint32_t record = 0;
  std::uint32_t count = 0;  // references that the program holds through this value
};
struct Mapping {
  std::uint64_t bytes = 0;
  std::uint32_t record = 0;
};
// A mapping that the driver is about to undo.
struct Leaving {
  std::uint64_t address = 0;
  Mapping mapping;
  std::uint32_t token = 0;
};
struct Binding {
  std::uint64_t owner = 0;
  std::uint64_t stream = 0;  // where it is undone, once it is
  std::uint32_t record = 0;
  std::uint32_t context = 0;  // record of the context that it goes with, 0 if with none
  bool undone = false;
};

SpinLock g_lock;
FlatMap<Record> g_records;  // by number, from 1
FlatMap<Handle> g_handles;
FlatMap<Mapping> g_mappings;
FlatMap<Leaving> g_leaving;   // by number, from 1
FlatMap<Binding> g_bindings;  // by owner and place
std::uint32_t g_last_record = 0, g_last_leaving = 0, g_last_token = 0;
std::uint32_t g_any_bindings = 0;  // atomic
std::uint32_t g_any_undone = 0;    // atomic; bindings whose undoing waits for its stream
std::uint32_t g_outstanding = 0;   // atomic; a bit per card

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
  g_leaving.Reset();
  g_bindings.Reset();
  g_any_bindings = 0;
  g_any_undone = 0;
  g_outstanding = 0;
}

// One reference fewer; what is to be refunded, with the lock held. What was exported may live on
// behind a descriptor or in another process: only the driver can tell.
Record Drop(std::uint32_t number) {
  Record* record = g_records.Find(number);
  if (record == nullptr || --record->references != 0) return {};
  if (record->exported) {
    if (record->card >= 0) __atomic_fetch_or(&g_outstanding, 1u << record->card, __ATOMIC_ACQ_REL);
    return {};
  }
  const Record gone = *record;
  g_records.Erase(number);
  return gone;
}

// With the lock held.
const Mapping* MappingAt(std::uint64_t address) {
  if (const Mapping* mapping = g_mappings.Find(address); mapping != nullptr) return mapping;
  return g_mappings.Find(g_mappings.FindIf([address](std::uint64_t start, const Mapping& m) {
    return address >= start && address - start < m.bytes;
  }));
}

bool TakeLeaving(std::uint32_t token, Leaving* left) {
  const std::uint64_t number =
      g_leaving.FindIf([token](std::uint64_t, const Leaving& l) { return l.token == token; });
  if (number == 0) return false;
  *left = *g_leaving.Find(number);
  g_leaving.Erase(number);
  return true;
}

std::uint64_t OwnerOf(std::uint32_t multicast) { return std::uint64_t{multicast} << 1 | 1; }

std::uint64_t BindingKey(std::uint64_t owner, std::uint64_t place) {
  std::uint64_t x = (owner ^ (place * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  return (x ^ x >> 32) | 1;
}

// With the lock held.
void ChangeOwner(std::uint64_t from, std::uint64_t to) {
  while (Binding* found = g_bindings.Find(g_bindings.FindIf(
             [from](std::uint64_t, const Binding& b) { return b.owner == from; })))
    found->owner = to;
}

template <typename Is>
void DropBindings(Is&& is) {
  for (;;) {
    std::uint32_t record = 0;
    {
      Guard guard;
      if (!guard) return;
      const std::uint64_t key =
          g_bindings.FindIf([&is](std::uint64_t, const Binding& b) { return is(b); });
      const Binding* found = g_bindings.Find(key);
      if (found == nullptr) return;
      record = found->record;
      g_bindings.Erase(key);
    }
    LetGo(record);
  }
}

}  // namespace

void LetGo(std::uint32_t record) {
  if (record == 0) return;
  Record gone;
  {
    Guard guard;
    if (guard) gone = Drop(record);
  }
  Refund(gone.card, Kind::kVmm, gone.bytes);
  if (gone.card < 0) UnbindAll(OwnerOf(record));
}

bool AddPhysical(std::uint64_t handle, int card, std::uint64_t bytes) {
  ResetOnFork(Reset);
  std::uint32_t stale = 0;
  bool done = false;
  {
    Guard guard;
    if (!guard) return false;
    if (const Handle* old = g_handles.Find(handle); old != nullptr) stale = old->record;
    do {
      ++g_last_record;
    } while (g_last_record == 0 || g_records.Find(g_last_record) != nullptr);
    done = g_records.Insert(g_last_record, {bytes, card, 1, false}) != nullptr &&
           g_handles.Insert(handle, {g_last_record, 1}) != nullptr;
    if (!done) g_records.Erase(g_last_record);
  }
  LetGo(stale);
  return done;
}

std::uint32_t HoldPhysical(std::uint64_t handle) {
  Guard guard;
  const Handle* known = guard ? g_handles.Find(handle) : nullptr;
  Record* record = known == nullptr ? nullptr : g_records.Find(known->record);
  if (record == nullptr) return 0;
  ++record->references;
  return known->record;
}

std::uint32_t HoldMapped(std::uint64_t address) {
  Guard guard;
  const Mapping* mapping = guard ? MappingAt(address) : nullptr;
  Record* record = mapping == nullptr ? nullptr : g_records.Find(mapping->record);
  if (record == nullptr) return 0;
  ++record->references;
  return mapping->record;
}

int CardOfPhysical(std::uint32_t record) {
  Guard guard;
  const Record* found = guard ? g_records.Find(record) : nullptr;
  return found == nullptr ? -1 : found->card;
}

void NoteExport(std::uint32_t record) {
  Guard guard;
  if (Record* found = guard ? g_records.Find(record) : nullptr; found != nullptr)
    found->exported = true;
}

bool AnyOutstanding(int card) {
  return card >= 0 && (__atomic_load_n(&g_outstanding, __ATOMIC_ACQUIRE) >> card & 1) != 0;
}

std::uint64_t RefundOutstanding(int card, std::uint64_t most) {
  std::uint64_t sum = 0;
  if (!AnyOutstanding(card)) return 0;
  for (;;) {
    Record gone;
    {
      Guard guard;
      if (!guard) return sum;
      const std::uint64_t number = g_records.FindIf([&](std::uint64_t, const Record& r) {
        return r.references == 0 && r.card == card && r.bytes <= most - sum;
      });
      if (number == 0) return sum;
      gone = *g_records.Find(number);
      g_records.Erase(number);
      if (g_records.FindIf([&](std::uint64_t, const Record& r) {
            return r.references == 0 && r.card == card;
          }) == 0)
        __atomic_fetch_and(&g_outstanding, ~(1u << card), __ATOMIC_ACQ_REL);
    }
    Refund(gone.card, Kind::kVmm, gone.bytes);
    sum += gone.bytes;
  }
}

std::uint64_t OwnerOfMulticast(std::uint64_t handle) {
  Guard guard;
  const Handle* known = guard ? g_handles.Find(handle) : nullptr;
  // Of an imported object the end is not seen: what is bound stays until it is unbound.
  return known == nullptr ? handle << 1 : OwnerOf(known->record);
}

void Bind(std::uint64_t owner, std::uint64_t place, std::uint32_t record, std::uint32_t context) {
  if (record == 0) return;
  std::uint32_t former = 0;
  {
    Guard guard;
    if (!guard) return;  // the reference stays: never too little is charged
    const std::uint64_t key = BindingKey(owner, place);
    if (const Binding* old = g_bindings.Find(key); old != nullptr) former = old->record;
    g_bindings.Insert(key, {owner, 0, record, context, false});
    __atomic_store_n(&g_any_bindings, 1u, __ATOMIC_RELEASE);
  }
  LetGo(former);
}

void Unbind(std::uint64_t owner, std::uint64_t place) {
  std::uint32_t former = 0;
  {
    Guard guard;
    const std::uint64_t key = BindingKey(owner, place);
    const Binding* old = guard ? g_bindings.Find(key) : nullptr;
    if (old == nullptr) return;
    former = old->record;
    g_bindings.Erase(key);
  }
  LetGo(former);
}

void UnbindLater(std::uint64_t owner, std::uint64_t place, std::uint64_t stream) {
  Guard guard;
  Binding* old = guard ? g_bindings.Find(BindingKey(owner, place)) : nullptr;
  if (old == nullptr) return;
  old->stream = stream;
  old->undone = true;
  __atomic_store_n(&g_any_undone, 1u, __ATOMIC_RELEASE);
}

bool AnyUndone() { return __atomic_load_n(&g_any_undone, __ATOMIC_RELAXED) != 0; }

void EndUndone(std::uint64_t stream, bool all) {
  DropBindings([stream, all](const Binding& b) { return b.undone && (all || b.stream == stream); });
  Guard guard;
  if (guard && g_bindings.FindIf([](std::uint64_t, const Binding& b) { return b.undone; }) == 0)
    __atomic_store_n(&g_any_undone, 0u, __ATOMIC_RELEASE);
}

void UnbindAll(std::uint64_t owner) {
  if (AnyBindings()) DropBindings([owner](const Binding& b) { return b.owner == owner; });
}

void UnbindContext(std::uint32_t context) {
  if (context != 0 && AnyBindings())
    DropBindings([context](const Binding& b) { return b.context == context; });
}

bool AnyBindings() { return __atomic_load_n(&g_any_bindings, __ATOMIC_RELAXED) != 0; }

std::uint64_t Disown(std::uint64_t owner) {
  Guard guard;
  if (!guard) return 0;
  const std::uint64_t nobody = std::uint64_t{1} << 63 | ++g_last_token;
  ChangeOwner(owner, nobody);
  return nobody;
}

void Reown(std::uint64_t nobody, std::uint64_t owner) {
  Guard guard;
  if (guard && nobody != 0) ChangeOwner(nobody, owner);
}

void RetainPhysical(std::uint64_t handle, std::uint64_t address) {
  Guard guard;
  if (!guard) return;
  if (Handle* known = g_handles.Find(handle); known != nullptr) {
    ++known->count;
    return;
  }
  const Mapping* mapping = MappingAt(address);
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

void EndRelease(const Released& released) { LetGo(released.record); }

void MapPhysical(std::uint64_t address, std::uint64_t bytes, std::uint32_t record) {
  if (record == 0) return;
  std::uint32_t former = 0;
  {
    Guard guard;
    if (!guard) return;
    if (const Mapping* old = g_mappings.Find(address); old != nullptr) former = old->record;
    g_mappings.Insert(address, {bytes, record});
  }
  LetGo(former);
}

std::uint32_t BeginUnmap(std::uint64_t address, std::uint64_t bytes) {
  Guard guard;
  if (!guard || bytes == 0 || g_mappings.size() == 0) return 0;
  const std::uint32_t token = ++g_last_token == 0 ? ++g_last_token : g_last_token;
  bool any = false;
  for (;;) {
    // Mappings follow one another without a gap, except where unknown ones (imported memory) stand
    // between.
    std::uint64_t base = address;
    if (bytes != 0 && g_mappings.Find(address) == nullptr) {
      base = g_mappings.FindIf([&](std::uint64_t start, const Mapping&) {
        return start >= address && start - address < bytes;
      });
    }
    const Mapping* mapping = bytes == 0 ? nullptr : g_mappings.Find(base);
    if (mapping == nullptr) break;
    const Mapping taken = *mapping;
    g_mappings.Erase(base);
    do {
      ++g_last_leaving;
    } while (g_last_leaving == 0 || g_leaving.Find(g_last_leaving) != nullptr);
    any = g_leaving.Insert(g_last_leaving, {base, taken, token}) != nullptr || any;
    const std::uint64_t step = base - address + taken.bytes;
    address += step;
    bytes -= step < bytes ? step : bytes;
  }
  return any ? token : 0;
}

void EndUnmap(std::uint32_t token) {
  for (Leaving left; token != 0;) {
    {
      Guard guard;
      if (!guard || !TakeLeaving(token, &left)) return;
    }
    LetGo(left.mapping.record);
  }
}

void UndoUnmap(std::uint32_t token) {
  if (token == 0) return;
  Guard guard;
  for (Leaving left; guard && TakeLeaving(token, &left);)
    g_mappings.Insert(left.address, left.mapping);
}

}  // namespace tessera::fence
