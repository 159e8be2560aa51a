// The generated list of entry points: names, wrappers, versions.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::fence {

enum class Library : std::uint8_t { kCuda, kNvml };

// Index of an entry point in the generated tables; kNoEntry for a name that neither header
// declares.
using EntryIndex = std::int32_t;
inline constexpr EntryIndex kNoEntry = -1;

EntryIndex FindEntry(const char* name);
// The most entries that the tables may grow to.
inline constexpr EntryIndex kMostEntries = 1100;
EntryIndex EntryCount();
const char* EntryName(EntryIndex entry);
Library EntryLibrary(EntryIndex entry);
bool IsHooked(EntryIndex entry);
// The fence's own function, nullptr if the entry is passed on.
void* WrapperOf(EntryIndex entry);

// All ABI versions and stream forms of a driver function that cuGetProcAddress knows under one
// name.
std::span<const std::uint16_t> VariantsOf(EntryIndex entry);
// First CUDA version (as cuGetProcAddress counts them) with this ABI.
std::int32_t SinceVersion(EntryIndex entry);
// True for _ptsz and _ptds.
bool IsPerThread(EntryIndex entry);
// The variant that a driver hands out for a version and a stream form; kNoEntry if it is older than
// all.
EntryIndex VariantFor(EntryIndex entry, std::int32_t version, bool per_thread);

// The newest version that the tables know.
inline constexpr std::int32_t kNewestVersion = 13000;

}  // namespace tessera::fence
