// What one CUDA context takes on a card: nobody asks for it by size and the driver tells it only
// from outside, so it is measured once for each card and driver, in a process of its own, and
// remembered in the state directory.
#pragma once

#include "base/result.h"
#include "model/card.h"
#include "node/store.h"

namespace tessera::node {

// Fills Card::context_bytes of the cards that `only` names (index or UUID; empty = all). A card
// where it cannot be measured keeps 0 = unknown: contexts there are charged by what the fence can
// see from inside. Says so on stderr when it takes long.
void FillContextCosts(const StateRoot& root, const std::vector<std::string>& only,
                      model::Node& node);

}  // namespace tessera::node
