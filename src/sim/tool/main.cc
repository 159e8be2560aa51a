// tessera-sim: simulated nodes for tests and the demo.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sim/nodes/node_description.h"
#include "sim/tool/inject.h"
#include "sim/tool/run.h"
#include "sim/tool/show.h"

namespace tessera::sim {
namespace {

constexpr int kUsageStatus = 2;

constexpr char kExamples[] =
    "Examples:\n"
    "  tessera-sim run --node a10g -- python serve.py\n"
    "  tessera-sim run --node two-a10g --state /tmp/node -- ./a &   # several programs on one "
    "node\n"
    "  tessera-sim run --state /tmp/node -- ./b\n"
    "  tessera-sim show --state /tmp/node --output json\n"
    "  tessera-sim inject --state /tmp/node fault cuMemAlloc_v2 --result OUT_OF_MEMORY --skip 10 "
    "--count 1\n"
    "  tessera-sim inject --state /tmp/node xid 79 --card 0\n"
    "Presets: ";

int Complain(const std::string& text) {
  std::fprintf(stderr, "tessera-sim: %s\n", text.c_str());
  return 1;
}

// The node that --state names, else the one of this namespace or environment.
Status Attach(const std::string& state) {
  if (state.empty()) {
    if (AttachNode() != nullptr) return {};
    return Fail(Code::kNotFound, std::string("no node here: neither ") + kEnvNodePath + " nor " +
                                     kDefaultNodePath + " is one; name its file with --state");
  }
  NodeState* node = MapNode(state.c_str());
  if (node == nullptr) {
    if (errno == EPROTO)
      return Fail(Code::kDataLoss,
                  "--state " + state + ": not a node of this version of tessera-sim");
    return FailErrno("--state " + state, errno);
  }
  UseNode(node);
  return {};
}

struct InjectOptions {
  std::string state, call, result = "0", throttle;
  int card = 0, any_card = -1;
  double delay_ms = 0;
  std::uint32_t permille = 1000;
  std::uint64_t skip = 0, count = 0, xid = 0, corrected = 0, uncorrected = 0;
  std::uint32_t temperature = 0;
};

int Show(const std::string& state, const std::string& output) {
  if (Status attached = Attach(state); !attached) return Complain(attached.error().message);
  std::fputs((output == "json" ? ShowJson() : ShowText()).c_str(), stdout);
  return std::fflush(stdout) == 0
             ? 0
             : Complain(std::string("standard output: ") + std::strerror(errno));
}

int InjectFault(const InjectOptions& options) {
  Result<int> result = ParseResult(options.call, options.result);
  if (!result) return Complain(result.error().message);
  if (*result == 0 && options.delay_ms <= 0)
    return Complain("a fault needs --result, --delay-ms or both");
  if (options.call.empty() || options.call.size() >= sizeof(Fault::call)) {
    return Complain("call '" + options.call +
                    "' is not legal: a name of 1 to 63 letters, or the start of one and *");
  }
  const int index = AddFault(options.call, options.any_card, *result,
                             static_cast<std::uint64_t>(options.delay_ms * 1e6), options.permille,
                             options.skip, options.count);
  return index >= 0 ? 0
                    : Complain("64 faults are in force already: take some out with inject clear");
}

int Inject(const CLI::App& inject, const InjectOptions& options) {
  if (Status attached = Attach(options.state); !attached) return Complain(attached.error().message);
  NodeState& node = *AttachNode();
  for (int card : {options.card, std::max(options.any_card, 0)}) {
    if (card >= static_cast<int>(node.card_count)) {
      return Complain("--card '" + std::to_string(card) + "' is not legal: a card from 0 to " +
                      std::to_string(node.card_count - 1));
    }
  }
  CardState& card = node.cards[options.card];
  const std::string what = inject.get_subcommands().front()->get_name();
  if (what == "fault") return InjectFault(options);
  if (what == "hang") {
    // Every call of both libraries waits; that is what a hung driver looks like.
    for (const char* calls : {"cu*", "nvml*"}) {
      if (AddFault(calls, options.any_card, 0, static_cast<std::uint64_t>(options.delay_ms * 1e6),
                   1000, 0, options.count) < 0) {
        return Complain("64 faults are in force already: take some out with inject clear");
      }
    }
  } else if (what == "clear") {
    ClearFaults();
  } else if (what == "xid") {
    RaiseXid(options.card, options.xid);
  } else if (what == "ecc") {
    card.ecc_corrected.fetch_add(options.corrected);
    card.ecc_uncorrected.fetch_add(options.uncorrected);
  } else if (what == "temperature") {
    card.temperature_c.store(options.temperature);
  } else if (what == "throttle") {
    Result<std::uint64_t> reasons = ParseThrottle(options.throttle);
    if (!reasons) return Complain(reasons.error().message);
    card.throttle_reasons.store(*reasons);
  } else if (what == "lose") {
    // The driver reports it as XID 79 before the card is gone.
    RaiseXid(options.card, 79);
    card.recovery_action.store(2);  // reboot the node
    card.lost.store(1);
  } else if (what == "return") {
    card.recovery_action.store(0);
    card.lost.store(0);
  }
  return 0;
}

void AddInject(CLI::App& inject, InjectOptions& options) {
  inject.require_subcommand(1);
  const auto state = "file of the node; default: the one of this namespace";
  inject.add_option("--state", options.state, state);
  const auto one_card = [&](CLI::App* command) {
    command->add_option("--card", options.card, "card, 0 without it")
        ->check(CLI::Range(0, kMaxCards - 1));
  };
  const auto some_card = [&](CLI::App* command) {
    command->add_option("--card", options.any_card, "card, -1 = all")
        ->check(CLI::Range(-1, kMaxCards - 1));
  };

  CLI::App* fault =
      inject.add_subcommand("fault", "calls of one function fail, come late, or both");
  fault->add_option("CALL", options.call, "cuMemAlloc_v2, nvmlDeviceGetName, cuMem*")->required();
  fault->add_option("--result", options.result, "number or name of the result, 0 = none");
  fault->add_option("--delay-ms", options.delay_ms, "wait before")
      ->check(CLI::Range(0.0, 3'600'000.0));
  fault->add_option("--permille", options.permille, "of matching calls, drawn from the seed")
      ->check(CLI::Range(1, 1000));
  fault->add_option("--skip", options.skip, "calls that still work first");
  fault->add_option("--count", options.count, "calls that fail, 0 = all");
  some_card(fault);

  CLI::App* hang = inject.add_subcommand("hang", "every call of the driver waits");
  hang->add_option("--ms", options.delay_ms, "how long")
      ->required()
      ->check(CLI::Range(0.001, 3'600'000.0));
  hang->add_option("--count", options.count, "calls that wait, 0 = all");
  some_card(hang);

  inject.add_subcommand("clear", "takes out all faults");

  CLI::App* xid = inject.add_subcommand("xid", "the card reports an XID");
  xid->add_option("CODE", options.xid, "as in NVIDIA's XID catalogue")
      ->required()
      ->check(CLI::Range(1, 9999));
  one_card(xid);

  CLI::App* ecc = inject.add_subcommand("ecc", "memory errors are counted");
  ecc->add_option("--corrected", options.corrected, "single-bit errors");
  ecc->add_option("--uncorrected", options.uncorrected, "double-bit errors");
  one_card(ecc);

  CLI::App* temperature =
      inject.add_subcommand("temperature", "the card is that hot; 0 = as its load makes it");
  temperature->add_option("CELSIUS", options.temperature)->required()->check(CLI::Range(0, 150));
  one_card(temperature);

  CLI::App* throttle = inject.add_subcommand(
      "throttle", "clocks are held down: power, thermal, hw-thermal, power-brake, none");
  throttle->add_option("REASONS", options.throttle, "with commas")->required();
  one_card(throttle);

  one_card(inject.add_subcommand("lose", "the card falls off the bus (XID 79)"));
  one_card(inject.add_subcommand("return", "the card is back"));
}

int Main(int argc, char** argv) {
  CLI::App app{"Simulated NVIDIA cards for tests and the demo."};
  app.require_subcommand(1);
  std::string examples = kExamples;
  for (const std::string& name : PresetNames()) examples += name + " ";
  app.footer(examples);

  RunOptions run_options;
  CLI::App* run = app.add_subcommand("run", "starts a program on a simulated node");
  run->add_option("--node", run_options.node,
                  "description: a YAML file or a preset (default a10g)");
  run->add_option("--state", run_options.state,
                  "node file: made by the first who names it, joined by the others");
  run->add_option("--libraries", run_options.libraries,
                  "folder with the driver libraries (default ../lib)");
  run->add_flag("--no-namespace", run_options.no_namespace,
                "find the driver by environment variables");
  run->add_option("COMMAND", run_options.command, "after --")->required();
  run->positionals_at_end();

  std::string state, output = "text";
  CLI::App* show = app.add_subcommand("show", "what the cards hold and do");
  show->add_option("--state", state, "file of the node; default: the one of this namespace");
  show->add_option("--output", output, "text or json")->check(CLI::IsMember({"text", "json"}));

  InjectOptions inject_options;
  CLI::App* inject = app.add_subcommand("inject", "makes something go wrong");
  AddInject(*inject, inject_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tessera-sim: %s (see tessera-sim --help)\n", error.what());
    return kUsageStatus;
  }
  if (*show) return Show(state, output);
  if (*inject) return Inject(*inject, inject_options);
  Result<int> ended = Run(run_options);
  return ended ? *ended : Complain(ended.error().message);
}

}  // namespace
}  // namespace tessera::sim

int main(int argc, char** argv) { return tessera::sim::Main(argc, argv); }
