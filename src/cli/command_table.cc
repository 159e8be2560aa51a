#include <array>

#include "cli/command.h"
#include "cli/completion.h"

namespace tessera::cli {
namespace {

// A new subcommand is a new file and a new row here.
const std::array<CommandRow, 1> kTable = {
    CommandRow{"completion", "print a completion script for a shell",
               "tessera completion bash > /etc/bash_completion.d/tessera\n"
               "source <(tessera completion zsh)\n"
               "tessera completion fish > ~/.config/fish/completions/tessera.fish",
               &MakeCompletion},
};

}  // namespace

std::span<const CommandRow> CommandTable() { return kTable; }

}  // namespace tessera::cli
