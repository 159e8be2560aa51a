#include "memory/arena.h"

#include <cstring>

#include "os/os.h"

namespace tessera::fence {
namespace {

constexpr std::size_t kSlabBytes = 128 << 10;
constexpr std::size_t kHeaderBytes = 64;

}  // namespace

Arena::Slab* Arena::Map(std::size_t bytes) {
  auto* slab = static_cast<Slab*>(os::MapPrivate(bytes));
  if (slab == nullptr) return nullptr;
  static_assert(sizeof(Slab) <= kHeaderBytes);
  *slab = {slabs_, nullptr, bytes};
  if (slabs_ != nullptr) slabs_->previous = slab;
  slabs_ = slab;
  return slab;
}

void* Arena::Take(unsigned shift) {
  const std::size_t bytes = std::size_t{1} << shift;
  if (shift > kMostShared) {
    Slab* slab = Map(bytes + kHeaderBytes);
    return slab == nullptr ? nullptr : reinterpret_cast<char*>(slab) + kHeaderBytes;
  }
  if (Free*& list = free_[shift - kLeastShift]; list != nullptr) {
    Free* piece = list;
    list = piece->next;
    std::memset(piece, 0, bytes);
    return piece;
  }
  if (static_cast<std::size_t>(end_ - at_) < bytes) {
    Slab* slab = Map(kSlabBytes);
    if (slab == nullptr) return nullptr;
    // The rest of the old slab is not wasted.
    for (unsigned left = kMostShared; left >= kLeastShift; --left) {
      if (static_cast<std::size_t>(end_ - at_) < std::size_t{1} << left) continue;
      Give(at_, left);
      at_ += std::size_t{1} << left;
    }
    at_ = reinterpret_cast<char*>(slab) + kHeaderBytes;
    end_ = reinterpret_cast<char*>(slab) + kSlabBytes;
  }
  void* piece = at_;
  at_ += bytes;
  return piece;
}

void Arena::Give(void* piece, unsigned shift) {
  if (shift > kMostShared) {
    auto* slab = reinterpret_cast<Slab*>(static_cast<char*>(piece) - kHeaderBytes);
    (slab->previous != nullptr ? slab->previous->next : slabs_) = slab->next;
    if (slab->next != nullptr) slab->next->previous = slab->previous;
    os::Unmap(slab, slab->bytes);
    return;
  }
  auto* free = static_cast<Free*>(piece);
  free->next = free_[shift - kLeastShift];
  free_[shift - kLeastShift] = free;
}

void Arena::Reset() {
  while (slabs_ != nullptr) {
    Slab* next = slabs_->next;
    os::Unmap(slabs_, slabs_->bytes);
    slabs_ = next;
  }
  *this = Arena();
}

}  // namespace tessera::fence
