#include "cli/explain.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <ostream>

#include "cli/complain.h"
#include "cli/explain_view.h"
#include "cli/pod_file.h"
#include "cli/snapshot_json.h"
#include "cli/terminal.h"
#include "node/cards.h"
#include "node/request_text.h"
#include "node/slice_choice.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kPriorities[] = {"low", "high"};
constexpr std::string_view kPolicies[] = {"binpack", "spread"};

class Explain : public Command {
 public:
  void Declare(Options& options) override {
    options.Positional("NAME", name_, false, "a slice, by name or id");
    options.Text("-m,--mem", text_.memory, "N[MiB|Gi]", "would this much fit?");
    options.Text("-f,--file", file_, "POD.yaml[:CONTAINER]",
                 "would this container of a manifest fit?");
    options.Text("-c,--cores", text_.cores, "PERCENT", "with this share of the cores");
    options.Text("--card", text_.card, "INDEX|UUID[,...]", "on these cards only");
    options.Text("--cards", text_.cards, "N", "on this many cards");
    options.Choice("--priority", text_.priority, kPriorities,
                   "recorded and shown, not enforced yet");
    options.Choice("--policy", text_.policy, kPolicies,
                   "the fullest card that fits, or the emptiest");
  }

  int Run(const Context& context) override {
    const bool fit = !text_.memory.empty() || !file_.empty();
    const bool more = !text_.cores.empty() || !text_.card.empty() || !text_.cards.empty() ||
                      !text_.priority.empty() || !text_.policy.empty();
    if (!name_.empty() && (fit || more)) {
      return Complain(context, kUsage,
                      "give NAME alone, or --mem or -f with --cores, --card, --cards, --priority "
                      "and --policy, not both");
    }
    if (!fit && name_.empty()) {
      return Complain(context, kUsage,
                      "give the NAME of a slice, or --mem or -f to ask whether it would fit");
    }
    return fit ? ExplainFit(context) : ExplainSlice(context);
  }

 private:
  static int Complain(const Context& context, int code, const std::string& what) {
    return cli::Complain(context.err, "tessera explain", what, code);
  }

  int ExplainFit(const Context& context) {
    const Result<Asked> asked = ReadAsked(text_, file_, {"explain"});
    if (!asked) return Complain(context, kUsage, asked.error().message);
    const node::NewSlice* wanted = &asked->wanted;
    const Result<model::Node> cards = node::ReadCards();
    if (!cards) return Complain(context, kFailed, cards.error().message);
    const Result<node::StateRoot> root = node::FindStateRootToRead(context.state_dir);
    if (!root && root.error().code != Code::kNotFound)
      return Complain(context, kFailed, root.error().message);
    const Result<placement::Placement> placement =
        root ? node::Store(*root).TryPlace(*cards, *wanted)
             : Result<placement::Placement>(placement::Place(*cards, {}, wanted->request));
    if (!placement) return Complain(context, kFailed, placement.error().message);
    // A card that is not there gives no table.
    if (placement->asked_wrongly && placement->verdicts.empty() && context.output == Output::kText)
      return Complain(context, kUsage, placement->refusal);
    if (context.output == Output::kJson) {
      context.out << Pretty(FitJson(*cards, wanted->request, *placement));
    } else {
      context.out << FitText(*cards, wanted->request, *placement, TableWidth());
    }
    if (!placement->chosen.empty()) return kOk;
    return placement->asked_wrongly ? kUsage : kFailed;
  }

  int ExplainSlice(const Context& context) {
    Look look;
    const Observed observed = look.Observe(context.state_dir);
    if (observed.snapshot.state_error)
      return Complain(context, kFailed, observed.snapshot.state_error->message);
    const driver::SecondWallProbe wall =
        driver::ProbeSecondWall(look.nvml(), driver::HostForSecondWall());
    std::vector<const node::SliceRecord*> live;
    for (const watch::SliceFacts& slice : observed.snapshot.slices) live.push_back(&slice.record);
    const Result<std::size_t> chosen = node::ChooseSlice(live, name_, geteuid());
    if (!chosen) return Complain(context, kFailed, chosen.error().message);
    const watch::SliceFacts& slice = observed.snapshot.slices[*chosen];
    if (context.output == Output::kJson) {
      context.out << Pretty(SliceJson(observed, slice, wall));
    } else {
      context.out << SliceText(observed, slice, wall, TableWidth());
    }
    return kOk;
  }

  std::string name_;
  std::string file_;
  node::RequestText text_;
};

}  // namespace

std::unique_ptr<Command> MakeExplain() { return std::make_unique<Explain>(); }

}  // namespace tessera::cli
