#include "sim/cuda/handles.h"

#include <new>
#include <utility>

namespace tessera::sim {
namespace {

// A slot waits until this many others are free, so that a handle used after its end is not soon
// somebody else's.
constexpr std::uint32_t kReuseDelay = 64;

template <std::size_t... I>
constexpr auto MakeTables(std::index_sequence<I...>) {
  struct Tables {
    HandleTable table[sizeof...(I)];
  };
  return Tables{{HandleTable(static_cast<HandleKind>(I))...}};
}
using Tables =
    decltype(MakeTables(std::make_index_sequence<static_cast<std::size_t>(HandleKind::kLast)>{}));
// Never destroyed: trivial union storage.
union TablesForever {
  Tables value;
  constexpr TablesForever()
      : value(MakeTables(std::make_index_sequence<static_cast<std::size_t>(HandleKind::kLast)>{})) {
  }
  ~TablesForever() {}
};
constinit TablesForever tables;

}  // namespace

HandleTable& TableOf(HandleKind kind) { return tables.value.table[static_cast<std::size_t>(kind)]; }

HandleTable::Slot* HandleTable::SlotOf(std::uint64_t handle) const {
  if (KindOf(handle) != kind_ || (handle & 0xF) || handle >> 46) return nullptr;
  const std::uint32_t index = handle >> 4 & 0xFFFFF;
  if (index >= used_.load(std::memory_order_acquire)) return nullptr;
  Slot& slot = SlotAt(index);
  return (slot.generation.load(std::memory_order_acquire) & 0xFFFF) == (handle >> 24 & 0xFFFF)
             ? &slot
             : nullptr;
}

void* HandleTable::Find(std::uint64_t handle) const {
  Slot* slot = SlotOf(handle);
  return slot ? slot->object.load(std::memory_order_acquire) : nullptr;
}

std::uint64_t HandleTable::Insert(void* object) {
  std::lock_guard lock(mutex_);
  std::uint32_t index = used_.load(std::memory_order_relaxed);
  const bool full = index == kChunk * kChunks;
  if (free_first_ != kNone && (full || free_count_ > kReuseDelay)) {
    index = free_first_;
    Slot& slot = SlotAt(index);
    free_first_ = slot.next_free;
    if (free_first_ == kNone) free_last_ = kNone;
    --free_count_;
    slot.object.store(object, std::memory_order_release);
    return EncodeHandle(kind_, slot.generation.load(std::memory_order_relaxed), index);
  }
  if (full) return 0;
  std::atomic<Slot*>& chunk = chunks_[index / kChunk];
  if (!chunk.load(std::memory_order_relaxed)) {
    Slot* slots = new (std::nothrow) Slot[kChunk]();
    if (!slots) return 0;
    chunk.store(slots, std::memory_order_release);
  }
  SlotAt(index).object.store(object, std::memory_order_release);
  used_.store(index + 1, std::memory_order_release);
  return EncodeHandle(kind_, 0, index);
}

void* HandleTable::Remove(std::uint64_t handle) {
  std::lock_guard lock(mutex_);
  Slot* slot = SlotOf(handle);
  if (!slot) return nullptr;
  void* object = slot->object.exchange(nullptr, std::memory_order_acq_rel);
  if (!object) return nullptr;
  slot->generation.fetch_add(1, std::memory_order_release);
  const std::uint32_t index = handle >> 4 & 0xFFFFF;
  slot->next_free = kNone;
  if (free_last_ == kNone)
    free_first_ = index;
  else
    SlotAt(free_last_).next_free = index;
  free_last_ = index;
  ++free_count_;
  return object;
}

}  // namespace tessera::sim
