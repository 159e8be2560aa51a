// `tessera completion SHELL`: completion scripts made from the table of subcommands.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cli/command.h"

namespace tessera::cli {

std::unique_ptr<Command> MakeCompletion();

std::string BashCompletion(std::span<const CommandRow> table);
std::string ZshCompletion(std::span<const CommandRow> table);
std::string FishCompletion(std::span<const CommandRow> table);

}  // namespace tessera::cli
