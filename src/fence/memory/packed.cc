#include "memory/packed.h"

#include "memory/alloc_table.h"

namespace tessera::fence {
namespace {

std::uint64_t g_bytes[kMaxOwners];  // atomic, by context record

template <typename Change>
std::uint64_t Blocks(std::uint32_t context, Change&& change) {
  std::uint64_t& place = g_bytes[context];
  std::uint64_t old = __atomic_load_n(&place, __ATOMIC_RELAXED), now;
  do {
    now = change(old);
  } while (
      !__atomic_compare_exchange_n(&place, &old, now, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  const std::uint64_t before = RoundToBlocks(old), after = RoundToBlocks(now);
  return before > after ? before - after : after - before;
}

}  // namespace

std::uint64_t PackedGrowth(std::uint32_t context, std::uint64_t bytes) {
  const std::uint64_t have = __atomic_load_n(&g_bytes[context], __ATOMIC_RELAXED);
  return RoundToBlocks(have + bytes) - RoundToBlocks(have);
}

bool Pack(std::uint32_t context, std::uint64_t bytes, std::uint64_t charged,
          std::uint64_t* growth) {
  std::uint64_t& place = g_bytes[context];
  std::uint64_t old = __atomic_load_n(&place, __ATOMIC_RELAXED);
  do {
    *growth = RoundToBlocks(old + bytes) - RoundToBlocks(old);
    if (*growth > charged) return false;
  } while (!__atomic_compare_exchange_n(&place, &old, old + bytes, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED));
  return true;
}

std::uint64_t Unpack(std::uint32_t context, std::uint64_t bytes) {
  return Blocks(context, [bytes](std::uint64_t old) { return old > bytes ? old - bytes : 0; });
}

std::uint64_t UnpackAll(std::uint32_t context) {
  return Blocks(context, [](std::uint64_t) { return std::uint64_t{0}; });
}

}  // namespace tessera::fence
