// Memory pools of this process: charged by what they have reserved, in use or not. Imported pools
// are another process' memory.
//
// Thread safety: every function from any thread; no lock is held across a driver call.
#pragma once

#include <cstdint>

#include "real.h"

namespace tessera::fence {

// The record of a pool that is on a card of the slice; 0 for one that is not charged (host memory,
// imported, of a card that the slice has not). `card`: where one that cannot be told is charged.
std::uint32_t PoolRecord(CUmemoryPool pool, int card);
// Pools that the driver has just made: whatever was known of their handles is over.
enum class PoolMemory { kPinned, kManaged };
void NoteNewPool(CUmemoryPool pool, int card, PoolMemory memory);
void NoteImportedPool(CUmemoryPool pool);
void NoteHostPool(CUmemoryPool pool);
// An allocation of the pool was freed: the pool may have given memory back, now or at the next
// synchronisation.
void PoolFreed(std::uint32_t record);
// The same after its release threshold was changed.
void PoolMayShrink(std::uint32_t record);
// Makes the books follow what pools have given back since something was freed. Cheap when nothing
// was.
bool PoolsDirty();
void SettleDirtyPools();
// Every pool of the card.
void SettlePoolsOf(int card);
// What managed pools of the card are charged: their memory need not be on the card.
std::uint64_t ManagedPoolBytes(int card);
// Whether every pool of the card is charged what the driver says at this moment.
bool PoolsAgree(int card);

}  // namespace tessera::fence
