// Small arrays share blocks of 2 MiB of their context, but no program learns their addresses. They
// are charged for the fewest blocks that hold them.
//
// Thread safety: every function from any thread.
#pragma once

#include "charge/charge.h"

namespace tessera::fence {

// In the handle table: an array that is charged with the others of its context, not by itself.
inline constexpr Kind kPacked = Kind::kPool;

// Bytes that one more array of `bytes` would open.
std::uint64_t PackedGrowth(std::uint32_t context, std::uint64_t bytes);
// Adds it if the blocks that this opens are no more than the `charged` bytes that the caller has
// charged for them; `*growth` is what they are. False otherwise: nothing is added, so that no other
// thread finds room in a block that is not paid.
bool Pack(std::uint32_t context, std::uint64_t bytes, std::uint64_t charged, std::uint64_t* growth);
// Removes it; the bytes of blocks closed.
std::uint64_t Unpack(std::uint32_t context, std::uint64_t bytes);
// All of the context's; the bytes of blocks closed.
std::uint64_t UnpackAll(std::uint32_t context);

}  // namespace tessera::fence
