#include "memory/floating.h"

#include "charge/charge.h"
#include "memory/pools.h"

namespace tessera::fence {
namespace {

// Of one card, as of the last look.
struct Seen {
  std::uint64_t resident;  // atomic; floating memory that was in the driver's figure
  std::uint64_t floating;  // atomic; of so much, 0: never seen
  std::uint64_t doubt;     // atomic
};
constinit Seen g_seen[contract::kMaxCards] = {};

std::int64_t Clamp(std::int64_t value, std::int64_t least, std::int64_t most) {
  return value < least ? least : value > most ? most : value;
}

// Lengths of memory: far below what a signed number holds.
std::int64_t Signed(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes < contract::kMaxBytes ? bytes : contract::kMaxBytes);
}

}  // namespace

std::uint64_t FloatingBytes(int card) {
  return OwnBytes(card, Kind::kManaged) + OwnBytes(card, Kind::kImported) + ManagedPoolBytes(card);
}

void NoteDoubt(int card, std::uint64_t bytes) {
  if (card >= 0) __atomic_fetch_add(&g_seen[card].doubt, bytes, __ATOMIC_ACQ_REL);
}

bool AnyDoubt(int card) {
  return card >= 0 && __atomic_load_n(&g_seen[card].doubt, __ATOMIC_ACQUIRE) != 0;
}

Off CompareWithFigure(int card, std::uint64_t driver, std::uint64_t charged, std::uint64_t floating,
                      std::uint64_t grown) {
  Seen& seen = g_seen[card];
  const std::int64_t rest = Signed(charged) - Signed(floating);
  // All of the floating memory may be in the figure, or none.
  const std::int64_t most = Signed(driver) - rest, least = most - Signed(floating);
  Off off;
  off.between = floating != 0;
  if (off.between && __atomic_load_n(&seen.floating, __ATOMIC_ACQUIRE) == floating) {
    const std::int64_t doubt = Signed(__atomic_load_n(&seen.doubt, __ATOMIC_ACQUIRE));
    const std::int64_t since = most - Signed(__atomic_load_n(&seen.resident, __ATOMIC_ACQUIRE));
    off.bytes = Clamp(since, -doubt, doubt + Signed(grown));
  }
  off.bytes = Clamp(off.bytes, least, most);
  return off;
}

void RememberFigure(int card, std::uint64_t driver, std::uint64_t charged, std::uint64_t floating) {
  const std::uint64_t rest = charged - floating;
  const std::uint64_t above = driver > rest ? driver - rest : 0;
  Seen& seen = g_seen[card];
  __atomic_store_n(&seen.resident, above < floating ? above : floating, __ATOMIC_RELEASE);
  __atomic_store_n(&seen.floating, floating, __ATOMIC_RELEASE);
  __atomic_store_n(&seen.doubt, std::uint64_t{0}, __ATOMIC_RELEASE);
}

void ForgetFloating() {
  for (Seen& seen : g_seen) seen = Seen();
}

}  // namespace tessera::fence
