// What pool_api.cc needs of the pools' records beyond pools.h.
#pragma once

#include <cstdint>

#include "real.h"

namespace tessera::fence {

bool IsUncharged(CUmemoryPool pool);
int PoolCard(std::uint32_t record);
// Whether the pool has reserved `bytes` more than it uses.
bool PoolIdle(std::uint32_t record, std::uint64_t bytes);
// Before an allocation for which `reserved` was charged; PoolGrew ends it, or PoolWithdrawn where
// the driver gave nothing.
void PoolPromised(std::uint32_t record, std::uint64_t reserved);
void PoolWithdrawn(std::uint32_t record, std::uint64_t reserved);
// After an allocation for which `reserved_before` was charged: false when the pool has grown beyond
// the limit.
bool PoolGrew(std::uint32_t record, std::uint64_t reserved_before);
// After the allocation was given back because of that.
void PoolUndone(std::uint32_t record);
// Before the driver destroys the pool: from here on the fence asks it nothing about the handle.
// Waits (bounded) for threads that do. False when the record is not a live pool's. PoolStays or
// PoolDestroyed ends it.
bool PoolGoes(std::uint32_t record);
void PoolStays(std::uint32_t record);
void PoolDestroyed(std::uint32_t record);
void SettlePool(std::uint32_t record);

}  // namespace tessera::fence
