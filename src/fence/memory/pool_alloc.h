// What pool_api.cc needs of the pools' records beyond pools.h.
#pragma once

#include <cstdint>

#include "real.h"

namespace tessera::fence {

bool IsUncharged(CUmemoryPool pool);
int PoolCard(std::uint32_t record);
// Whether the pool has reserved `bytes` more than it uses.
bool PoolIdle(std::uint32_t record, std::uint64_t bytes);
// After an allocation for which `reserved_before` was charged: false when the pool has grown beyond
// the limit.
bool PoolGrew(std::uint32_t record, std::uint64_t reserved_before);
// After the allocation was given back because of that.
void PoolUndone(std::uint32_t record);
void PoolDestroyed(std::uint32_t record);
void SettlePool(std::uint32_t record);

}  // namespace tessera::fence
