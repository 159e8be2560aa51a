#include "memory/linear.h"

#include "memory/own_usage.h"
#include "memory/pools.h"

namespace tessera::fence::detail {

bool Settle(CUdeviceptr pointer, std::uint64_t size, const Place& place, Kind kind,
            Reservation& reserved) {
  if (place.card < 0) return false;
  Allocation allocation;
  allocation.size = size;
  allocation.owner = place.context;
  allocation.card = static_cast<std::uint32_t>(place.card);
  allocation.kind = kind;
  std::uint64_t opened = 0, unpaid = 0, stale_bytes = 0;
  Allocation stale;
  if (!LiveTable().Insert(pointer, allocation, reserved.bytes(), &opened, &unpaid, &stale,
                          &stale_bytes))
    return false;
  if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
  // Managed memory shares no block with others.
  if (opened != 0 && size <= kShareLimit && kind != Kind::kManaged)
    SmallBlockChanged(place.card, false);
  for (;;) {
    if (reserved.Keep(place.card, kind, opened)) {
      if (unpaid != 0) Refund(place.card, kind, unpaid - LiveTable().Pay(pointer, allocation));
      return true;
    }
    // Another thread that shares the block may have paid for it meanwhile.
    const std::uint64_t still = unpaid == 0 ? 0 : LiveTable().Unpaid(pointer, allocation);
    if (still >= unpaid) break;
    opened -= unpaid - still;
    unpaid = still;
  }
  // Of its blocks only those are refunded that another thread has paid for and left behind.
  if (LiveTable().Take(pointer, &allocation))
    Refund(place.card, kind, LiveTable().CloseBlocks(pointer, allocation) - (opened - unpaid));
  return false;
}

Place PlaceOfPointer(CUdeviceptr pointer) {
  Place place = CurrentPlace();
  if (place.card != kUnknownCard) return place;
  int device = -1;
  if (real::cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer) ==
      CUDA_SUCCESS) {
    place.device = device;
    place.card = CardOfDevice(device);
  }
  return place;
}

void Freed(CUdeviceptr pointer, const Allocation& allocation) {
  if (allocation.kind == Kind::kPool) {
    PoolFreed(allocation.owner);
    return;
  }
  const int card = static_cast<int>(allocation.card);
  const std::uint64_t closed = LiveTable().CloseBlocks(pointer, allocation);
  const bool managed = allocation.kind == Kind::kManaged;  // shares no block with others
  if (closed != 0 && allocation.size <= kShareLimit && !managed) SmallBlockChanged(card, true);
  Refund(card, allocation.kind, closed);
  if (managed) AfterFloating(card, 1);
}

void ManagedGoes(const Allocation& allocation) {
  BeforeFloating(static_cast<int>(allocation.card), 1);
}

void NotFreed(CUdeviceptr pointer, const Allocation& allocation) {
  LiveTable().PutBack(pointer, allocation);
}

}  // namespace tessera::fence::detail
