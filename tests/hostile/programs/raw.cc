// Takes card memory below every library, as a program does that talks to the driver's device files
// itself: no symbol of the driver's library is called, so there is nothing that a fence in this
// process could stand before. Linked statically and dynamically.
//
//   raw MIB    holds MIB until stdin ends; prints "holding", or "out of memory" when the driver
//   refuses
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/state/node_state.h"

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::uint64_t bytes = std::strtoull(words[1], nullptr, 10) << 20;
  if (!tessera::sim::ChargeCard(0, bytes)) {
    std::puts("out of memory");
    return 3;
  }
  std::puts("holding");
  std::fflush(stdout);
  for (char byte; read(STDIN_FILENO, &byte, 1) > 0;) {
  }
  return 0;
}
