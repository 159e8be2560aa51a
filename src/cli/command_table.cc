#include <array>

#include "cli/command.h"
#include "cli/completion.h"
#include "cli/limit.h"
#include "cli/run.h"

namespace tessera::cli {
namespace {

// A new subcommand is a new file and a new row here.
const std::array<CommandRow, 3> kTable = {
    CommandRow{"run", "start a program behind the fence of a new slice",
               "tessera run --mem 8000 -- python serve.py\n"
               "tessera run --mem 10Gi --cores 30 --card 0 --name chat -- ./server\n"
               "tessera run --mem 8000 --dry-run -- true",
               &MakeRun},
    CommandRow{"limit", "change what a running slice may hold, without a restart",
               "tessera limit chat --mem 12000", &MakeLimit},
    CommandRow{"completion", "print a completion script for a shell",
               "tessera completion bash > /etc/bash_completion.d/tessera\n"
               "source <(tessera completion zsh)\n"
               "tessera completion fish > ~/.config/fish/completions/tessera.fish",
               &MakeCompletion},
};

}  // namespace

std::span<const CommandRow> CommandTable() { return kTable; }

}  // namespace tessera::cli
