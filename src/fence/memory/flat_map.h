// A small hash map from a 64-bit key (not 0) to plain data, in its own mapping; no heap.
//
// Thread safety: none; its owner has a lock. Errors: false or nullptr when there is no memory.
#pragma once

#include <cstdint>

#include "os/os.h"

namespace tessera::fence {

template <typename Value>
class FlatMap {
 public:
  Value* Find(std::uint64_t key) {
    if (mask_ == 0 || key == 0) return nullptr;
    for (std::uint64_t i = Home(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (entries_[i].key == 0) return nullptr;
    }
  }
  // The place for a key that is new; the one that is there otherwise.
  Value* Insert(std::uint64_t key, const Value& value) {
    if (Value* found = Find(key); found != nullptr) {
      *found = value;
      return found;
    }
    if (key == 0 || ((mask_ == 0 || filled_ >= mask_ / 2) && !Grow())) return nullptr;
    std::uint64_t i = Home(key);
    while (entries_[i].key != 0) i = (i + 1) & mask_;
    entries_[i] = {key, value};
    ++filled_;
    return &entries_[i].value;
  }
  bool Erase(std::uint64_t key) {
    Value* found = Find(key);
    if (found == nullptr) return false;
    std::uint64_t gap = static_cast<std::uint64_t>(
        reinterpret_cast<Entry*>(reinterpret_cast<char*>(found) - offsetof(Entry, value)) -
        entries_);
    for (std::uint64_t i = (gap + 1) & mask_; entries_[i].key != 0; i = (i + 1) & mask_) {
      if (((i - Home(entries_[i].key)) & mask_) >= ((i - gap) & mask_)) {
        entries_[gap] = entries_[i];
        gap = i;
      }
    }
    entries_[gap] = Entry();
    --filled_;
    return true;
  }
  // Calls visit(key, value) until it returns true; the key it stopped at, or 0.
  template <typename Visit>
  std::uint64_t FindIf(Visit&& visit) {
    for (std::uint64_t i = 0; mask_ != 0 && i <= mask_; ++i) {
      if (entries_[i].key != 0 && visit(entries_[i].key, entries_[i].value)) return entries_[i].key;
    }
    return 0;
  }
  std::uint64_t size() const { return filled_; }
  void Reset() {
    if (mask_ != 0) os::Unmap(entries_, (mask_ + 1) * sizeof(Entry));
    *this = FlatMap();
  }

 private:
  struct Entry {
    std::uint64_t key = 0;
    Value value{};
  };
  std::uint64_t Home(std::uint64_t key) const {
    key *= 0x9e3779b97f4a7c15u;
    return (key ^ key >> 32) & mask_;
  }
  bool Grow() {
    const std::uint64_t capacity = mask_ == 0 ? 128 : (mask_ + 1) * 2;
    auto* entries = static_cast<Entry*>(os::MapPrivate(capacity * sizeof(Entry)));
    if (entries == nullptr) return false;
    FlatMap grown;
    grown.entries_ = entries;
    grown.mask_ = capacity - 1;
    for (std::uint64_t i = 0; mask_ != 0 && i <= mask_; ++i) {
      if (entries_[i].key != 0) grown.Insert(entries_[i].key, entries_[i].value);
    }
    if (mask_ != 0) os::Unmap(entries_, (mask_ + 1) * sizeof(Entry));
    *this = grown;
    return true;
  }
  Entry* entries_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t filled_ = 0;
};

}  // namespace tessera::fence
