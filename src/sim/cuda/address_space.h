// Where device memory lies in this process: one reserved span of virtual addresses, handed out in
// units of 2 MiB, and the table that finds the range an address belongs to.
//
// Bytes of device memory are plain private pages of the process, so untouched memory costs nothing
// and an 80 GiB card needs no 80 GiB of host memory. The span is asked for at 4 TiB and halved
// until the kernel (or valgrind, a sanitizer, `ulimit -v`) agrees.
//
// Thread safety: every function is called with MemoryLock held, except as noted.
// Invariants:
//   1. Ranges do not overlap; each published range is found for every address in it, in constant
//      time.
//   2. Bytes that nobody owns are zero: who gives a range back clears what was written.
#pragma once

#include <cstdint>

#include "sim/cuda/context.h"

namespace tessera::sim {

inline constexpr std::uint64_t kUnit = kBlockBytes;
constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

enum class RangeKind : std::uint8_t {
  kBlock,        // small allocations (small_blocks.h)
  kLarge,        // one cuMemAlloc of whole units
  kManaged,      // cuMemAllocManaged
  kPoolChunk,    // memory of a pool (pool.h)
  kReservation,  // cuMemAddressReserve (vmm.h)
  kImported,     // another process' allocation by IPC
  kPoolImport,   // another process' pool allocation
  kMapped,       // external memory buffer
};

struct Range {
  RangeKind kind{};
  bool dirty = false;   // somebody may have written
  bool shared = false;  // its pages belong to a file that other mappings see too
  int card = -1;
  std::uint64_t base = 0, bytes = 0;   // whole units
  std::uint64_t offset = 0, size = 0;  // where the allocation starts in it and its bytes as asked
                                       // for (not of blocks and chunks)
  std::uint64_t id = 0;                // CU_POINTER_ATTRIBUTE_BUFFER_ID
  Context* context = nullptr;          // nullptr: belongs to no context
  Range* next = nullptr;               // of the same context
  Range* previous = nullptr;
};

class MemoryLock {
 public:
  MemoryLock();
  ~MemoryLock();
  MemoryLock(const MemoryLock&) = delete;
  MemoryLock& operator=(const MemoryLock&) = delete;
};

// Takes `bytes` (whole units) of addresses that can be read and written; 0 when there are no more.
// `alignment` is a power of two of at least one unit (0 = one unit). `low`: below 4 GiB, from a
// small span of its own.
std::uint64_t TakeAddresses(std::uint64_t bytes, std::uint64_t alignment = 0, bool low = false);
// Takes addresses without access, at `wanted` if that is free.
std::uint64_t ReserveAddresses(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t wanted);
// Gives them back. `clear` when anything was written or mapped there.
void GiveAddresses(std::uint64_t base, std::uint64_t bytes, bool clear);

void PublishRange(Range& range);
void WithdrawRange(Range& range);
// The published range that holds the address, or nullptr.
Range* FindRange(std::uint64_t address);

// Makes [base, base + bytes) zero again, giving pages back to the host where that is worth a system
// call.
void ClearBytes(std::uint64_t base, std::uint64_t bytes);

// ClearBytes for memory that may be shared with other processes. Takes MemoryLock itself.
void ZeroDeviceBytes(std::uint64_t base, std::uint64_t bytes);

// Never 0, unique in the process.
std::uint64_t NextBufferId();

// True when the address lies in the span at all. Needs no lock.
bool IsDeviceAddress(std::uint64_t address);

}  // namespace tessera::sim
