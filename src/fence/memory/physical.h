// Physical allocations of cuMemCreate: charged until the last handle and the last mapping are gone.
//
// Thread safety: every function from any thread; one lock, since the calls themselves take
// microseconds to milliseconds. Handles and mappings of imported or host memory are not known here
// and never charged.
#pragma once

#include <cstdint>

namespace tessera::fence {

// `handle` is new and owns `bytes` on `card`. False when it cannot be remembered.
bool AddPhysical(std::uint64_t handle, int card, std::uint64_t bytes);
// One more reference through a handle that was retained by address.
void RetainPhysical(std::uint64_t handle, std::uint64_t address);
// One reference of the handle goes: before the driver call, so that the value may come back in
// another thread. UndoRelease if that fails.
struct Released {
  bool known = false;
  std::uint32_t record = 0;
};
Released BeginRelease(std::uint64_t handle);
void UndoRelease(std::uint64_t handle, const Released& released);
void EndRelease(const Released& released);
void MapPhysical(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle);
void UnmapPhysical(std::uint64_t address, std::uint64_t bytes);

}  // namespace tessera::fence
