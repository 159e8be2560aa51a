// `tessera ps`: the slices of this machine.
#pragma once

#include <memory>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakePs();

}  // namespace tessera::cli
