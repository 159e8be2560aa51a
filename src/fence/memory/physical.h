// Physical allocations of cuMemCreate: charged until nothing refers to them any more: handles,
// mappings, tiles of sparse arrays, multicast objects that they are bound to. What was exported may
// outlive all of these behind a descriptor: it stays charged until the driver's own figure for this
// process says that it is gone, or the process ends.
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

// A reference for the length of a driver call, so that the handle's release in another thread does
// not end the record: by handle, or by an address that it is mapped at. 0 for unknown memory.
std::uint32_t HoldPhysical(std::uint64_t handle);
std::uint32_t HoldMapped(std::uint64_t address);
void LetGo(std::uint32_t record);
// -1 for a multicast object and for unknown memory.
int CardOfPhysical(std::uint32_t record);

// The held reference becomes that of the mapping.
void MapPhysical(std::uint64_t address, std::uint64_t bytes, std::uint32_t record);
// Before the driver unmaps, since another thread may map there at once; 0 where nothing is known.
std::uint32_t BeginUnmap(std::uint64_t address, std::uint64_t bytes);
void EndUnmap(std::uint32_t token);
void UndoUnmap(std::uint32_t token);

// The held reference becomes that of a place in an array or a multicast object; what was bound
// there before is let go. Arrays go with their context.
void Bind(std::uint64_t owner, std::uint64_t place, std::uint32_t record, std::uint32_t context);
void Unbind(std::uint64_t owner, std::uint64_t place);
// The same once the work of the stream is done. A place that is not bound as such stays as it is
// until its owner ends.
void UnbindLater(std::uint64_t owner, std::uint64_t place, std::uint64_t stream);
bool AnyUndone();
// A stream's handle as a number; the default stream is the legacy one (1) or the thread's own (2).
template <typename Stream>
std::uint64_t StreamNumber(Stream stream, std::uint64_t standard) {
  const auto number = reinterpret_cast<std::uint64_t>(stream);
  return number == 0 ? standard : number;
}
// After a synchronisation with the stream, or with all. A thread's own default stream (2) is not
// told from another thread's: what waits for one waits for all.
void EndUndone(std::uint64_t stream, bool all);
void UnbindAll(std::uint64_t owner);
void UnbindContext(std::uint32_t context);
bool AnyBindings();
// Before the driver ends an owner, whose handle may come back at once: its bindings are those of
// the result, to be given to UnbindAll or, where it did not end, to Reown.
std::uint64_t Disown(std::uint64_t owner);
void Reown(std::uint64_t nobody, std::uint64_t owner);
// Owners: arrays are even numbers, their handles.
std::uint64_t OwnerOfMulticast(std::uint64_t handle);

// Of a record that is held.
void NoteExport(std::uint32_t record);
// Whether exported memory of the card has lost its last reference here.
bool AnyOutstanding(int card);
// The driver's figure is `most` bytes lower than the books: refunds what of the outstanding memory
// fits into that.
std::uint64_t RefundOutstanding(int card, std::uint64_t most);

}  // namespace tessera::fence
