#include "sim/cuda/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "sim/cuda/extents.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kWantedSpan = std::uint64_t{4} << 40;
constexpr std::uint64_t kLeastSpan = std::uint64_t{256} << 20;
constexpr std::uint64_t kAccessStep =
    std::uint64_t{1}
    << 30;  // access is opened in steps: one system call per GiB, not per allocation
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kClearByHand =
    64 * 1024;  // below this writing zeros is cheaper than a system call

constexpr int kRecent = 16;

constinit std::mutex memory_mutex;
constinit std::atomic<std::uint64_t> buffer_ids{1};
constinit std::atomic<std::uint64_t> span_base{0}, span_bytes{0};
constinit std::atomic<std::uint64_t> low_base{0}, low_bytes{0};

// Everything below is guarded by memory_mutex and never destroyed.
struct Span {
  std::uint64_t base, bytes, open_end;  // [base, open_end) can be read and written
  FreeExtents free;
  // Single units given back last, so that taking and giving one block in turn searches nothing.
  std::uint64_t recent[kRecent];
  int recent_count;
  Range** starts;              // per unit: the range that starts there
  std::uint64_t* start_bits;   // one bit per unit
  std::uint64_t* start_words;  // one bit per word of start_bits
  std::uint64_t units;
};
constinit Span* full_span = nullptr;
// Below 4 GiB, for the first ABI, whose device pointers have 32 bits. Made when that is first used.
constinit Span* low_span = nullptr;
constexpr std::uint64_t kLowSpan = std::uint64_t{512} << 20;

void* Map(std::uint64_t bytes, int protection, int flags = 0) {
  void* at =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

Span* SpanOf(std::uint64_t address) {
  return low_span && address - low_span->base < low_span->bytes ? low_span : full_span;
}

Span* MakeSpan(std::uint64_t bytes, int flags) {
  void* at = Map(bytes + kUnit, PROT_NONE, flags);
  if (!at) return nullptr;
  auto* made = new Span{};
  made->base = RoundUp(reinterpret_cast<std::uint64_t>(at), kUnit);
  made->bytes = bytes;
  made->open_end = made->base;
  made->units = bytes / kUnit;
  const std::uint64_t words = (made->units + 63) / 64;
  made->starts = static_cast<Range**>(Map(made->units * sizeof(Range*), PROT_READ | PROT_WRITE));
  made->start_bits = static_cast<std::uint64_t*>(Map(words * 8, PROT_READ | PROT_WRITE));
  made->start_words =
      static_cast<std::uint64_t*>(Map((words + 63) / 64 * 8, PROT_READ | PROT_WRITE));
  if (!made->starts || !made->start_bits || !made->start_words) {
    munmap(at, bytes + kUnit);
    delete made;
    return nullptr;
  }
  madvise(at, bytes + kUnit,
          MADV_NOHUGEPAGE);  // one written byte must not cost 2 MiB of host memory
  madvise(at, bytes + kUnit, MADV_DONTDUMP);
  made->free.Give(made->base, made->bytes);
  return made;
}

Span* Ready(bool low) {
  if (low && !low_span && (low_span = MakeSpan(kLowSpan, MAP_32BIT))) {
    low_base = low_span->base;
    low_bytes = low_span->bytes;
  }
  for (std::uint64_t bytes = kWantedSpan; !low && !full_span && bytes >= kLeastSpan; bytes /= 2)
    if ((full_span = MakeSpan(bytes, 0))) {
      span_base = full_span->base;
      span_bytes = full_span->bytes;
    }
  return low ? low_span : full_span;
}

bool OpenUpTo(Span* span, std::uint64_t end) {
  if (end <= span->open_end) return true;
  const std::uint64_t target = std::min(RoundUp(end, kAccessStep), span->base + span->bytes);
  // What lies between may be a reservation without access: it is opened only where it is free or
  // about to be used.
  for (std::uint64_t at = span->open_end; at < target;) {
    Range* inside = FindRange(at);
    if (inside && inside->kind == RangeKind::kReservation) {
      at = inside->base + inside->bytes;
      continue;
    }
    std::uint64_t stop = target;
    for (std::uint64_t unit = (at - span->base) / kUnit; span->base + unit * kUnit < target; ++unit)
      if (span->starts[unit] && span->starts[unit]->kind == RangeKind::kReservation) {
        stop = span->base + unit * kUnit;
        break;
      }
    if (mprotect(reinterpret_cast<void*>(at), stop - at, PROT_READ | PROT_WRITE) != 0) return false;
    at = stop;
  }
  span->open_end = std::max(span->open_end, target);
  return true;
}

}  // namespace

MemoryLock::MemoryLock() { memory_mutex.lock(); }
MemoryLock::~MemoryLock() { memory_mutex.unlock(); }

std::uint64_t TakeAddresses(std::uint64_t bytes, std::uint64_t alignment, bool low) {
  Span* span = Ready(low);
  std::uint64_t base = 0;
  if (span && bytes == kUnit && alignment <= kUnit && span->recent_count > 0)
    return span->recent[--span->recent_count];
  if (bytes == 0 || !span) return 0;
  alignment = std::max(alignment, kUnit);
  // What is open already, else the lowest place: the far end is for reservations.
  if (!span->free.Take(bytes, alignment, &base, span->open_end) &&
      !span->free.TakeFirst(bytes, alignment, &base))
    return 0;
  if (OpenUpTo(span, base + bytes)) return base;
  span->free.Give(base, bytes);
  return 0;
}

std::uint64_t ReserveAddresses(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t wanted) {
  Span* span = Ready(false);
  if (bytes == 0 || !span) return 0;
  alignment = std::max(alignment, kUnit);
  std::uint64_t base = wanted;
  // Reservations come from the far end, away from the part that is open.
  if (!(wanted && wanted % alignment == 0 && span->free.TakeAt(wanted, bytes)) &&
      !span->free.TakeLast(bytes, alignment, &base))
    return 0;
  if (base < span->open_end && mprotect(reinterpret_cast<void*>(base), bytes, PROT_NONE) != 0) {
    span->free.Give(base, bytes);
    return 0;
  }
  return base;
}

void GiveAddresses(std::uint64_t base, std::uint64_t bytes, bool clear) {
  Span* span = SpanOf(base);
  // Anything may be mapped where a reservation was; a fresh mapping restores zero pages and the
  // protection of its place.
  if (clear) {
    void* at = reinterpret_cast<void*>(base);
    const std::uint64_t open = std::clamp(span->open_end, base, base + bytes) - base;
    if (open)
      mmap(at, open, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (open < bytes)
      mmap(reinterpret_cast<void*>(base + open), bytes - open, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    madvise(at, bytes, MADV_NOHUGEPAGE);
  }
  if (bytes == kUnit && !clear && span->recent_count < kRecent)
    span->recent[span->recent_count++] = base;
  else
    span->free.Give(base, bytes);
}

void PublishRange(Range& range) {
  Span* span = SpanOf(range.base);
  const std::uint64_t unit = (range.base - span->base) / kUnit;
  span->starts[unit] = &range;
  span->start_bits[unit / 64] |= std::uint64_t{1} << unit % 64;
  span->start_words[unit / 4096] |= std::uint64_t{1} << unit / 64 % 64;
}

void WithdrawRange(Range& range) {
  Span* span = SpanOf(range.base);
  const std::uint64_t unit = (range.base - span->base) / kUnit;
  span->starts[unit] = nullptr;
  if ((span->start_bits[unit / 64] &= ~(std::uint64_t{1} << unit % 64)) == 0)
    span->start_words[unit / 4096] &= ~(std::uint64_t{1} << unit / 64 % 64);
}

Range* FindRange(std::uint64_t address) {
  if (!IsDeviceAddress(address)) return nullptr;
  Span* span = SpanOf(address);
  const std::uint64_t unit = (address - span->base) / kUnit;
  // The nearest start at or before the unit: in its own word, else in the last non-empty word
  // before it.
  std::uint64_t word = unit / 64;
  std::uint64_t bits = span->start_bits[word] & (~std::uint64_t{0} >> (63 - unit % 64));
  if (!bits) {
    std::uint64_t group = word / 64;
    std::uint64_t words =
        word % 64 ? span->start_words[group] & (~std::uint64_t{0} >> (64 - word % 64)) : 0;
    while (!words) {
      if (group == 0) return nullptr;
      words = span->start_words[--group];
    }
    word = group * 64 + 63 - std::countl_zero(words);
    bits = span->start_bits[word];
  }
  Range* range = span->starts[word * 64 + 63 - std::countl_zero(bits)];
  return address < range->base + range->bytes ? range : nullptr;
}

void ClearBytes(std::uint64_t base, std::uint64_t bytes) {
  if (bytes < kClearByHand) {
    std::memset(reinterpret_cast<void*>(base), 0, bytes);
    return;
  }
  const std::uint64_t first = RoundUp(base, kPage), end = (base + bytes) / kPage * kPage;
  std::memset(reinterpret_cast<void*>(base), 0, first - base);
  std::memset(reinterpret_cast<void*>(end), 0, base + bytes - end);
  madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

void ZeroDeviceBytes(std::uint64_t base, std::uint64_t bytes) {
  bool shared = false;
  {
    MemoryLock lock;
    const Range* range = FindRange(base);
    shared = !range || range->shared;
  }
  if (shared)
    std::memset(reinterpret_cast<void*>(base), 0, bytes);
  else
    ClearBytes(base, bytes);
}

std::uint64_t NextBufferId() { return buffer_ids.fetch_add(1, std::memory_order_relaxed); }

bool IsDeviceAddress(std::uint64_t address) {
  return address - span_base.load(std::memory_order_relaxed) <
             span_bytes.load(std::memory_order_relaxed) ||
         address - low_base.load(std::memory_order_relaxed) <
             low_bytes.load(std::memory_order_relaxed);
}

}  // namespace tessera::sim
