#pragma once

#include <memory>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakeLimit();

}  // namespace tessera::cli
