#include "cli/command.h"
#include "cli/completion.h"
#include "cli/doctor.h"
#include "cli/explain.h"
#include "cli/limit.h"
#include "cli/ps.h"
#include "cli/run.h"
#include "cli/top.h"

namespace tessera::cli {
namespace {

// A new subcommand is a new file and a new row here.
const CommandRow kTable[] = {
    CommandRow{"run", "start a program behind the fence of a new slice",
               "tessera run --mem 8000 -- python serve.py\n"
               "tessera run --mem 10Gi --cores 30 --card 0 --name chat -- ./server\n"
               "tessera run --mem 8000 --dry-run -- true",
               &MakeRun},
    CommandRow{"limit", "change what a running slice may hold, without a restart",
               "tessera limit chat --mem 12000", &MakeLimit},
    CommandRow{"ps", "list the slices of this machine and what they hold",
               "tessera ps\n"
               "tessera ps --output json | jq '.slices[].name'",
               &MakePs},
    CommandRow{"top", "show cards and slices, live",
               "tessera top\n"
               "tessera top -n 1",
               &MakeTop},
    CommandRow{"explain", "say whether something would fit, or what a slice's promises are worth",
               "tessera explain --mem 8000 --cores 30\n"
               "tessera explain -f pod.yaml:chat\n"
               "tessera explain chat",
               &MakeExplain},
    CommandRow{"doctor", "examine this machine: driver, fence, slices, foreign processes",
               "tessera doctor\n"
               "tessera doctor --output json",
               &MakeDoctor},
    CommandRow{"completion", "print a completion script for a shell",
               "tessera completion bash > /etc/bash_completion.d/tessera\n"
               "source <(tessera completion zsh)\n"
               "tessera completion fish > ~/.config/fish/completions/tessera.fish",
               &MakeCompletion},
};

}  // namespace

std::span<const CommandRow> CommandTable() { return kTable; }

}  // namespace tessera::cli
