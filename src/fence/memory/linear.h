// Allocations that have an address and are charged by the blocks that they touch.
#pragma once

#include "memory/live.h"
#include "memory/turn.h"
#include "memory/underway.h"

namespace tessera::fence {

// Allocates through `allocate(CUdeviceptr*, std::uint64_t* size)`: it calls the driver and says how
// large the allocation became (it starts as `size`). `*out` is written only on success. Driver
// errors are the driver's own.
template <typename Allocate>
CUresult AllocateLinear(CUdeviceptr* out, std::uint64_t size, Kind kind, Allocate&& allocate);

// Frees with `release()` (a driver call) what may be an allocation of ours; unknown pointers go to
// the driver untouched.
template <typename FreeCall>
CUresult FreeLinear(CUdeviceptr pointer, FreeCall&& release);

// The parts that need no template.
namespace detail {
// After the driver has allocated: puts the books right. False when it does not fit: the caller
// frees.
bool Settle(CUdeviceptr pointer, std::uint64_t size, const Place& place, Kind kind,
            Reservation& reserved);
Place PlaceOfPointer(CUdeviceptr pointer);
void ManagedGoes(const Allocation& allocation);
void Freed(CUdeviceptr pointer, const Allocation& allocation);
void NotFreed(CUdeviceptr pointer, const Allocation& allocation);
}  // namespace detail

template <typename Allocate>
CUresult AllocateLinear(CUdeviceptr* out, std::uint64_t size, Kind kind, Allocate&& allocate) {
  Place place = detail::CurrentPlaceInline();
  if (place.card == kForeignCard) return Refuse(place.card, size);
  if (size > kMaxAllocation) return Refuse(place.card, size);
  Underway underway(Underway::Ordered::kByNextAtomic);
  const bool small = size <= kShareLimit;
  // What the driver may take is charged before it is asked, a whole block for the smallest request:
  // of all threads and processes together it never takes what the limit does not allow.
  std::uint64_t taken = small ? kBlockBytes : RoundToBlocks(size);
  if (place.card == kUnknownCard) taken = 0;
  if (taken == 0) underway.Order();  // otherwise the reservation does
  Reservation reserved(place.card, kind, taken);
  // A full slice may still have room in a block that it has paid for: only the driver knows. It is
  // asked by one thread at a time, so that it is one block at most by which it is wrong.
  Turn turn;
  if (!reserved.granted()) {
    if (!small || !LiveTable().MayShare(size)) return Refuse(place.card, size);
    turn.Wait(place.card);
  }
  CUdeviceptr pointer = 0;
  const CUresult result = allocate(&pointer, &size);
  if (result != CUDA_SUCCESS) return result;
  if (place.card == kUnknownCard) place = detail::PlaceOfPointer(pointer);
  if (!detail::Settle(pointer, size, place, kind, reserved)) {
    real::cuMemFree_v2(pointer);
    return Refuse(place.card, size);
  }
  *out = pointer;
  return CUDA_SUCCESS;
}

template <typename FreeCall>
CUresult FreeLinear(CUdeviceptr pointer, FreeCall&& release) {
  Underway underway(Underway::Ordered::kByNextAtomic);  // by the lock that Take takes
  Allocation allocation;
  if (!LiveTable().Take(pointer, &allocation)) {
    underway.Order();  // perhaps it could not take it
    return release();
  }
  if (allocation.kind == Kind::kManaged) [[unlikely]]
    detail::ManagedGoes(allocation);
  const CUresult result = release();
  if (result == CUDA_SUCCESS) {
    detail::Freed(pointer, allocation);
  } else {
    detail::NotFreed(pointer, allocation);
  }
  return result;
}

}  // namespace tessera::fence
