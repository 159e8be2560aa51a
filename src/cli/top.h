// `tessera top`: cards and slices, live.
#pragma once

#include <memory>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakeTop();

}  // namespace tessera::cli
