// `tessera doctor`: is the fence live on this machine, and what can it not prevent?
#pragma once

#include <memory>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakeDoctor();

}  // namespace tessera::cli
