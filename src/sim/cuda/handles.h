// Checked handles. What the application gets is not a pointer but (kind, generation, index), so
// that any value, NULL and stale ones included, can be asked for without touching memory that is
// not ours.
//
// Thread safety: Find is lock-free and wait-free; Insert and Remove lock the table. An object that
// one thread removes while another uses it is the application's race, as with the driver.
// Invariants:
//   1. A handle is found only between its Insert and its Remove; the generation of a slot changes
//      with each Remove, so a stale handle stays unknown for 65,535 reuses of its slot, and slots
//      are reused oldest first.
//   2. No handle equals NULL, 1 or 2 (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
//   3. Tables are constant-initialised and never destroyed: the runtime calls the driver from exit
//      handlers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tessera::sim {

enum class HandleKind : std::uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kLink,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kConditional,
  kArray,
  kMipmap,
  kTexRef,
  kSurfRef,
  kTexObject,
  kSurfObject,
  kPool,
  kAllocation,  // cuMemCreate
  kMulticast,   // shares the type of kAllocation, and cuMemRelease
  kExternalMemory,
  kExternalSemaphore,
  kGreenContext,
  kResourceDesc,
  kAsyncCallback,
  kLogsCallback,
  kLast,
};

// Layout: bits 4-23 index, 24-39 generation, 40-45 kind. Below 2^47, like a user-space address.
constexpr std::uint64_t EncodeHandle(HandleKind kind, std::uint32_t generation,
                                     std::uint32_t index) {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 40 |
         std::uint64_t{generation & 0xFFFF} << 24 | std::uint64_t{index} << 4;
}
constexpr HandleKind KindOf(std::uint64_t handle) { return static_cast<HandleKind>(handle >> 40); }

class HandleTable {
 public:
  constexpr explicit HandleTable(HandleKind kind) : kind_(kind) {}

  // 0 when the table is full (1,048,576 live) or memory is exhausted.
  std::uint64_t Insert(void* object);
  void* Find(std::uint64_t handle) const;
  // The object, which is no longer found; nullptr when the handle was not known.
  void* Remove(std::uint64_t handle);
  // Calls f(object) for each live object. f may remove objects of this table.
  template <typename F>
  void ForEach(F f) const {
    const std::uint32_t end = used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < end; ++i)
      if (void* object = SlotAt(i).object.load(std::memory_order_acquire)) f(object);
  }

 private:
  struct Slot {
    std::atomic<void*> object;
    std::atomic<std::uint32_t> generation;
    std::uint32_t next_free;
  };
  static constexpr std::uint32_t kChunk = 4096, kChunks = 256, kNone = 0xFFFFFFFF;

  Slot& SlotAt(std::uint32_t index) const {
    return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  Slot* SlotOf(std::uint64_t handle) const;

  const HandleKind kind_;
  std::mutex mutex_;
  std::atomic<std::uint32_t> used_{0};
  std::uint32_t free_first_ = kNone, free_last_ = kNone, free_count_ = 0;
  std::atomic<Slot*> chunks_[kChunks]{};
};

// A type with a table: `struct Stream { static constexpr HandleKind kKind = HandleKind::kStream;
// using Handle = CUstream; }`.
HandleTable& TableOf(HandleKind kind);

namespace internal {
template <typename H>
std::uint64_t ToBits(H handle) {
  if constexpr (sizeof(H) == 8 && requires { static_cast<std::uint64_t>(handle); })
    return static_cast<std::uint64_t>(handle);
  else
    return reinterpret_cast<std::uint64_t>(handle);
}
template <typename H>
H FromBits(std::uint64_t bits) {
  if constexpr (requires { static_cast<H>(bits); })
    return static_cast<H>(bits);
  else
    return reinterpret_cast<H>(bits);
}
}  // namespace internal

template <typename T>
typename T::Handle NewHandle(T* object) {
  return internal::FromBits<typename T::Handle>(TableOf(T::kKind).Insert(object));
}
// nullptr when `handle` is not a live handle of this type.
template <typename T>
T* Find(typename T::Handle handle) {
  return static_cast<T*>(TableOf(T::kKind).Find(internal::ToBits(handle)));
}
template <typename T>
T* RemoveHandle(typename T::Handle handle) {
  return static_cast<T*>(TableOf(T::kKind).Remove(internal::ToBits(handle)));
}
template <typename T, typename F>
void ForEach(F f) {
  TableOf(T::kKind).ForEach([&](void* object) { f(static_cast<T*>(object)); });
}

}  // namespace tessera::sim
