// The cards of this machine as placement wants them, asked from the driver in a process apart: the
// launcher has to stay single-threaded and free of what a driver library leaves behind, and a
// driver that hangs is killed.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/card.h"

namespace tessera::node {

// kUnavailable when there is no driver or it does not answer within the bound.
Result<model::Node> ReadCards();

// The text that crosses between the two processes.
std::string NodeText(const model::Node& node);
Result<model::Node> ParseNode(const std::string& text);

}  // namespace tessera::node
