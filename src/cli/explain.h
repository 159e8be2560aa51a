// `tessera explain`: would it fit, or what is this slice worth?
#pragma once

#include <memory>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakeExplain();

}  // namespace tessera::cli
