// A driver's list, thinned out to what the slice may see, by NVML's protocol for lists.
#pragma once

#include "nvml/own_processes.h"
#include "real.h"

namespace tessera::fence::nvml {

inline constexpr unsigned kFirstGuess = 256;  // items; most cards have fewer processes
inline constexpr unsigned kMost = 1u << 16;

// Asks `ask(&count, array)` for everything, with as much room as it takes, keeps what `keep(item)`
// wants (and may change), and hands it over by the protocol.
template <typename Item, typename Ask, typename Keep>
nvmlReturn_t Thin(unsigned* count, Item* items, Ask ask, Keep keep) {
  for (unsigned room = kFirstGuess; room <= kMost; room *= 4) {
    Scratch<Item> all(room);
    if (all.size() == 0) return NVML_ERROR_MEMORY;
    unsigned found = room;
    const nvmlReturn_t result = ask(&found, all.data());
    if (result == NVML_ERROR_INSUFFICIENT_SIZE) continue;
    if (result != NVML_SUCCESS) return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < found && i < room; ++i) {
      if (keep(all[i])) all[kept++] = all[i];
    }
    if (kept > *count || (kept > 0 && items == nullptr)) {
      *count = kept;
      return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < kept; ++i) items[i] = all[i];
    *count = kept;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_MEMORY;
}

}  // namespace tessera::fence::nvml
