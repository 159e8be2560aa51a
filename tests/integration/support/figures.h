// What the ledger says and what the (simulated) driver says, for tests that compare the two.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::testing {

struct Figures {
  std::uint64_t
      ledger_total;  // LedgerCard.total without its version: what limits are checked against
  std::uint64_t ledger_own;    // sum over this process' slot
  std::uint64_t ledger_live;   // sum over all slots whose owner lives
  std::uint64_t driver_own;    // what the driver counts for this process
  std::uint64_t driver_total;  // what the driver counts for the whole card
  std::uint64_t limit;         // of the slice
};

// Card 0 of the slice and card 0 of the node. Ends the program with a message when either cannot be
// read: a comparison without figures must not pass.
Figures ReadFigures();

// Prints every live process whose ledger slot differs from what the driver counts for it, kind by
// kind.
void PrintDifferences();

// The slice directory of this process ($TESSERA_SLICE_DIR, else /run/tessera).
std::string SliceDirectory();

}  // namespace tessera::testing
