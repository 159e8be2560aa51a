// Memory in powers of two from mappings of its own; no heap.
//
// Thread safety: none; its owner has a lock. Errors: nullptr when there is no memory.
// Invariant: every piece lies in a slab of the list, so that Reset() finds all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::fence {

class Arena {
 public:
  static constexpr unsigned kLeastShift = 6;  // a cache line; pieces are aligned to it

  // 2^shift bytes of zeroes, shift >= kLeastShift.
  void* Take(unsigned shift);
  // What Take(shift) gave. Large pieces go back to the system, others wait for the next Take.
  void Give(void* piece, unsigned shift);
  // Unmaps everything that was ever taken.
  void Reset();

 private:
  static constexpr unsigned kMostShared = 14;  // larger pieces have a slab each
  struct Slab {
    Slab* next;
    Slab* previous;
    std::size_t bytes;
  };
  struct Free {
    Free* next;
  };

  Slab* Map(std::size_t bytes);

  char* at_ = nullptr;  // what is left of the newest shared slab
  char* end_ = nullptr;
  Slab* slabs_ = nullptr;
  Free* free_[kMostShared - kLeastShift + 1] = {};
};

}  // namespace tessera::fence
