// `tessera-sim show`: what the cards of a node hold and do.
#pragma once

#include <string>

#include "sim/state/node_state.h"

namespace tessera::sim {

// Of the node of this process (UseNode). Text for people, 80 columns; JSON for programs.
std::string ShowText();
std::string ShowJson();

}  // namespace tessera::sim
