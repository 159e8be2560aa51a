#include "sim/cuda/extents.h"

#include <iterator>

namespace tessera::sim {

void FreeExtents::Add(std::uint64_t base, std::uint64_t bytes) {
  by_base_.emplace(base, bytes);
  by_size_.emplace(bytes, base);
}

void FreeExtents::Drop(Extent extent) {
  by_base_.erase(extent.base);
  by_size_.erase({extent.bytes, extent.base});
}

void FreeExtents::Give(std::uint64_t base, std::uint64_t bytes) {
  const auto next = by_base_.lower_bound(base);
  if (next != by_base_.end() && base + bytes == next->first) {
    bytes += next->second;
    Drop({next->first, next->second});
  }
  const auto after = by_base_.lower_bound(base);
  if (after != by_base_.begin()) {
    const Extent before{std::prev(after)->first, std::prev(after)->second};
    if (before.base + before.bytes == base) {
      base = before.base;
      bytes += before.bytes;
      Drop(before);
    }
  }
  Add(base, bytes);
}

void FreeExtents::Cut(Extent from, std::uint64_t base, std::uint64_t bytes) {
  Drop(from);
  if (base > from.base) Add(from.base, base - from.base);
  const std::uint64_t end = base + bytes, from_end = from.base + from.bytes;
  if (from_end > end) Add(end, from_end - end);
}

bool FreeExtents::Take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base,
                       std::uint64_t limit) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const Extent from{it->second, it->first};
    const std::uint64_t first = (from.base + alignment - 1) / alignment * alignment;
    if (first + bytes > from.base + from.bytes || first + bytes > limit) continue;
    Cut(from, first, bytes);
    *base = first;
    return true;
  }
  return false;
}

bool FreeExtents::TakeFirst(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base) {
  for (const auto& [free_base, free_bytes] : by_base_) {
    const std::uint64_t first = (free_base + alignment - 1) / alignment * alignment;
    if (first + bytes > free_base + free_bytes) continue;
    Cut({free_base, free_bytes}, first, bytes);
    *base = first;
    return true;
  }
  return false;
}

bool FreeExtents::TakeLast(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* base) {
  for (auto it = by_base_.rbegin(); it != by_base_.rend(); ++it) {
    const Extent from{it->first, it->second};
    if (from.bytes < bytes) continue;
    const std::uint64_t first = (from.base + from.bytes - bytes) / alignment * alignment;
    if (first < from.base) continue;
    Cut(from, first, bytes);
    *base = first;
    return true;
  }
  return false;
}

bool FreeExtents::TakeAt(std::uint64_t base, std::uint64_t bytes) {
  const auto after = by_base_.upper_bound(base);
  if (after == by_base_.begin()) return false;
  const Extent from{std::prev(after)->first, std::prev(after)->second};
  if (base + bytes > from.base + from.bytes) return false;
  Cut(from, base, bytes);
  return true;
}

}  // namespace tessera::sim
