#include "cli/run.h"

#include <boost/json.hpp>
#include <ostream>

#include "base/files.h"
#include "base/log.h"
#include "cli/complain.h"
#include "cli/pod_file.h"
#include "cli/snapshot_json.h"
#include "node/cards.h"
#include "node/context_cost.h"
#include "node/held_signals.h"
#include "node/launcher.h"
#include "node/program.h"
#include "node/request_text.h"
#include "node/store.h"
#include "watch/watcher.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kPriorities[] = {"low", "high"};
constexpr std::string_view kPolicies[] = {"binpack", "spread"};
constexpr std::string_view kBypassActions[] = {"report", "pause", "kill"};

// Which code the shell gets when nothing was started.
int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kAlreadyExists:
      return kUsage;
    case Code::kResourceExhausted:
      return kRunNoRoom;
    default:
      return kRunRefused;
  }
}

boost::json::value TextOrNull(const std::string& text) {
  return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
}

boost::json::object ToJson(const model::Node& node, const placement::Placement& placement) {
  boost::json::array cards, verdicts;
  for (const model::SliceCard& card : placement.chosen) {
    cards.push_back(boost::json::object{
        {"uuid", ToString(card.uuid)}, {"memory_bytes", card.memory_bytes}, {"cores", card.cores}});
  }
  for (std::size_t i = 0; i < placement.verdicts.size(); ++i) {
    const placement::CardVerdict& verdict = placement.verdicts[i];
    verdicts.push_back(boost::json::object{{"index", verdict.index},
                                           {"uuid", ToString(node.cards[i].uuid)},
                                           {"fits", verdict.fits},
                                           {"reason", TextOrNull(verdict.reason)},
                                           {"asked_bytes", verdict.asked_bytes},
                                           {"free_bytes", verdict.free_bytes},
                                           {"total_bytes", verdict.total_bytes},
                                           {"asked_cores", verdict.asked_cores},
                                           {"free_cores", verdict.free_cores},
                                           {"slices", verdict.slices}});
  }
  return {{"schema", "tessera.run-dry/1"},
          {"fits", !placement.chosen.empty()},
          {"refusal", TextOrNull(placement.refusal)},
          {"cards", std::move(cards)},
          {"verdicts", std::move(verdicts)}};
}

std::string CardsText(const model::Node& node, const std::vector<model::SliceCard>& cards) {
  std::string text;
  for (const model::SliceCard& promised : cards) {
    for (const model::Card& card : node.cards) {
      if (card.uuid != promised.uuid || !card.healthy) continue;
      text += (text.empty() ? "" : ", ") + std::string("card ") + std::to_string(card.index) +
              " (" + card.name + "): " + model::MibText(promised.memory_bytes);
      if (promised.cores > 0) text += " and " + std::to_string(promised.cores) + " % of cores";
    }
  }
  return text;
}

class RunCommand : public Command {
 public:
  void Declare(Options& options) override {
    options.Text("-m,--mem", text_.memory, "N[MiB|Gi]",
                 "card memory, on each card; a bare number is MiB");
    options.Text("-f,--file", file_, "POD.yaml[:CONTAINER]",
                 "take the request of a manifest's container; options given beside it win");
    options.Text("-c,--cores", text_.cores, "PERCENT",
                 "share of each card's compute, 1 to 100; recorded and shown, not enforced yet");
    options.Text("--card", text_.card, "INDEX|UUID[,...]", "only these cards");
    options.Text("--cards", text_.cards, "N", "how many cards, 1 by default");
    options.Text(
        "--name", text_.name, "NAME",
        "the slice's name, unique among your own while it lives; the command's by default");
    options.Choice("--priority", text_.priority, kPriorities,
                   "recorded and shown, not enforced yet");
    options.Choice("--policy", text_.policy, kPolicies,
                   "the fullest card that fits (default) or the emptiest");
    options.Choice("--on-bypass", text_.on_bypass, kBypassActions,
                   "what happens to a process that goes round the fence: report by default");
    options.Flag("--require-fence", require_fence_,
                 "refuse when the fence could be escaped by an edited environment");
    options.Flag("--dry-run", dry_run_, "only say where it would go");
    options.Text("--library", library_, "FILE", "the fence to use instead of the installed one");
    options.Flag("-v,--verbose", verbose_, "say on stderr what was done");
    options.Rest("command", command_, "the program and its arguments");
  }

  int Run(const Context& context) override {
    base::FillStandardStreams();
    base::SetVerbose(verbose_);
    Result<Asked> asked = ReadAsked(text_, file_, command_);
    if (!asked) return Complain(context, asked.error());
    const node::NewSlice* wanted = &asked->wanted;
    command_ = asked->command;
    if (Result<std::string> around = node::SurroundingSlice()) {
      return Complain(context, {Code::kFailedPrecondition,
                                "already inside slice '" + *around +
                                    "'; a slice cannot be divided: run this outside of it"});
    }
    if (dry_run_) return DryRun(context, *wanted);

    Result<std::string> program = node::FindProgram(command_[0]);
    if (!program) {
      Complain(context, program.error());
      return program.error().code == Code::kNotFound ? kRunNotFound : kRunNotExecutable;
    }
    Result<std::string> library = node::FindFenceLibrary(library_);
    if (!library) return Complain(context, library.error());
    Result<model::Node> cards = node::ReadCards();
    if (!cards) return Complain(context, cards.error());
    Result<node::StateRoot> root = node::FindStateRoot(context.state_dir);
    if (!root) return Complain(context, root.error());
    if (!root->note.empty()) base::Say(root->note);
    node::FillContextCosts(*root, wanted->request.only_cards, *cards);
    node::Store store(*root);
    node::HeldSignals signals;
    Result<node::SliceRecord> record = store.Commit(*cards, *wanted);
    if (!record) return Complain(context, record.error());
    base::Detail("slice " + record->slice.name + " (" + record->slice.id + ") on " +
                 CardsText(*cards, record->slice.cards));
    if (wanted->request.cores > 0 || !text_.priority.empty()) {
      base::Detail("cores and priority are recorded and shown, not enforced yet");
    }
    StartWatcher(*root, *record);
    context.out.flush();
    const node::LaunchFailure failure =
        node::Launch(store, *record, {command_, *program, *library, require_fence_, &signals});
    const int exit_code = Complain(context, failure.error);
    return failure.at_exec ? kRunNotExecutable : exit_code;
  }

 private:
  int Complain(const Context& context, const Error& error) {
    return cli::Complain(context.err, "tessera run", error.message, ExitCodeOf(error));
  }

  // The slice runs without one as well: the fence does not need it.
  static void StartWatcher(const node::StateRoot& root, const node::SliceRecord& record) {
    Result<watch::WatcherStarted> watcher = watch::StartWatcher({root, record});
    if (!watcher) {
      base::Say(watcher.error().message +
                ": a process that goes round the fence is found by `tessera doctor` only");
    } else {
      base::Detail(watcher->second_wall ? "behind the driver's own limit as well"
                                        : "no second wall: " + watcher->second_wall_reason);
    }
  }

  int DryRun(const Context& context, const node::NewSlice& wanted) {
    Result<model::Node> cards = node::ReadCards();
    if (!cards) return Complain(context, cards.error());
    Result<placement::Placement> placement = Placed(context, *cards, wanted);
    if (!placement) return Complain(context, placement.error());
    if (context.output == Output::kJson) {
      context.out << Compact(ToJson(*cards, *placement));
    } else if (!placement->chosen.empty()) {
      context.out << CardsText(*cards, placement->chosen) << "\n";
    }
    if (!placement->chosen.empty()) return kOk;
    return Complain(context,
                    {placement->asked_wrongly ? Code::kInvalidArgument : Code::kResourceExhausted,
                     placement->refusal});
  }

  // Where nothing was ever promised there is nothing to read, and a dry run makes nothing.
  Result<placement::Placement> Placed(const Context& context, const model::Node& cards,
                                      const node::NewSlice& wanted) {
    Result<node::StateRoot> root = node::FindStateRootToRead(context.state_dir);
    if (root) return node::Store(*root).TryPlace(cards, wanted);
    if (root.error().code != Code::kNotFound) return Fail(root.error());
    return placement::Place(cards, {}, wanted.request);
  }

  node::RequestText text_;
  std::string file_, library_;
  std::vector<std::string> command_;
  bool require_fence_ = false, dry_run_ = false, verbose_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRun() { return std::make_unique<RunCommand>(); }

}  // namespace tessera::cli
