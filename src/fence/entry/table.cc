#include "entry/table.h"

#include <cstddef>
#include <cstring>

namespace tessera::fence {
namespace {

struct Traits {
  std::int32_t since;
  std::uint16_t first_variant;
  std::uint8_t variants;
  bool per_thread;
  bool hooked;
};

#include "entry_names.inc"

static_assert(kEntries <= kMostEntries);

}  // namespace

extern "C" {
[[gnu::visibility("hidden")]] extern const std::int32_t tessera_wrappers[];
}

EntryIndex FindEntry(const char* name) {
  std::uint32_t hash = 2166136261u;  // FNV-1a, as gen_entry.py
  for (const char* at = name; *at != '\0'; ++at)
    hash = (hash ^ static_cast<unsigned char>(*at)) * 16777619u;
  for (std::uint32_t slot = hash % kHashSlots;; slot = (slot + 1) % kHashSlots) {
    const std::uint16_t entry = kHashTable[slot];
    if (entry == 0) return kNoEntry;
    if (std::strcmp(kNameText + kNameOffsets[entry - 1], name) == 0) return entry - 1;
  }
}

EntryIndex EntryCount() { return kEntries; }
const char* EntryName(EntryIndex entry) { return kNameText + kNameOffsets[entry]; }
Library EntryLibrary(EntryIndex entry) {
  return static_cast<std::uint32_t>(entry) < kDriverEntries ? Library::kCuda : Library::kNvml;
}
bool IsHooked(EntryIndex entry) { return kTraits[entry].hooked; }
std::int32_t SinceVersion(EntryIndex entry) { return kTraits[entry].since; }
bool IsPerThread(EntryIndex entry) { return kTraits[entry].per_thread; }

void* WrapperOf(EntryIndex entry) {
  const std::int32_t distance = tessera_wrappers[entry];
  if (distance == 0) return nullptr;
  return const_cast<char*>(reinterpret_cast<const char*>(tessera_wrappers)) + distance;
}

std::span<const std::uint16_t> VariantsOf(EntryIndex entry) {
  const Traits& traits = kTraits[entry];
  return {kVariantMembers + traits.first_variant, traits.variants};
}

EntryIndex VariantFor(EntryIndex entry, std::int32_t version, bool per_thread) {
  EntryIndex best = kNoEntry;
  EntryIndex best_per_thread = kNoEntry;
  for (EntryIndex variant : VariantsOf(entry)) {
    if (SinceVersion(variant) > version) continue;
    EntryIndex& place = IsPerThread(variant) ? best_per_thread : best;
    if (place == kNoEntry || SinceVersion(variant) > SinceVersion(place)) place = variant;
  }
  return per_thread && best_per_thread != kNoEntry ? best_per_thread : best;
}

}  // namespace tessera::fence
