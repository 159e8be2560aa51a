// Free extents of a one-dimensional space: best fit, joined with their neighbours when given back.
// O(log n).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tessera::sim {

class FreeExtents {
 public:
  struct Extent {
    std::uint64_t base, bytes;
  };

  void Give(std::uint64_t base, std::uint64_t bytes);

  // Cuts `bytes` at a multiple of `alignment` out of the smallest extent that has them below
  // `limit`; false when none has.
  bool Take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base,
            std::uint64_t limit = ~std::uint64_t{0});
  // The same from the first extent that has them. O(n).
  bool TakeFirst(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base);
  // The same from the end of the last extent.
  bool TakeLast(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base);
  // Exactly [base, base + bytes); false unless all of it is free.
  bool TakeAt(std::uint64_t base, std::uint64_t bytes);

 private:
  void Cut(Extent from, std::uint64_t base, std::uint64_t bytes);
  void Add(std::uint64_t base, std::uint64_t bytes);
  void Drop(Extent extent);

  std::map<std::uint64_t, std::uint64_t> by_base_;             // base -> bytes
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (bytes, base)
};

}  // namespace tessera::sim
