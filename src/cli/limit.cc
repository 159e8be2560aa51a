#include "cli/limit.h"

#include <boost/json.hpp>
#include <ostream>

#include "cli/complain.h"
#include "cli/snapshot_json.h"
#include "node/cards.h"
#include "node/request_text.h"
#include "node/store.h"
#include "watch/watcher.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kPriorities[] = {"low", "high"};

class Limit : public Command {
 public:
  void Declare(Options& options) override {
    options.Positional("NAME", name_, true, "the slice's name or id, as `tessera ps` shows it");
    options.Text("-m,--mem", text_.memory, "N[MiB|Gi]", "new limit on each card of the slice");
    options.Text("-c,--cores", text_.cores, "PERCENT",
                 "new share, 1 to 100; recorded and shown, not enforced yet");
    options.Choice("--priority", text_.priority, kPriorities,
                   "recorded and shown, not enforced yet");
  }

  int Run(const Context& context) override {
    Result<node::Change> change = node::ParseChange(text_);
    if (!change) return Complain(context, change.error());
    Result<node::StateRoot> root = node::FindStateRootToRead(context.state_dir);
    if (!root) return Complain(context, root.error());
    Result<model::Node> cards = node::ReadCards();
    if (!cards) return Complain(context, cards.error());
    Result<node::Changed> changed = node::Store(*root).SetLimits(*cards, name_, *change);
    if (!changed) return Complain(context, changed.error());
    MoveSecondWall(context, changed->after);
    if (context.output == Output::kJson) {
      PrintJson(context, *changed);
    } else {
      PrintText(context, *changed);
    }
    return kOk;
  }

 private:
  // The fence holds the new limit whatever comes of this.
  static void MoveSecondWall(const Context& context, const node::SliceRecord& record) {
    Result<std::unique_ptr<driver::Nvml>> nvml = driver::OpenNvml({});
    if (!nvml) return;
    if (Status moved = watch::MatchSecondWall(**nvml, record); !moved) {
      cli::Complain(context.err, "tessera limit", moved.error().message, kOk);
    }
  }

  static int Complain(const Context& context, const Error& error) {
    const int code = error.code == Code::kInvalidArgument     ? kUsage
                     : error.code == Code::kResourceExhausted ? kRunNoRoom
                                                              : kFailed;
    return cli::Complain(context.err, "tessera limit", error.message, code);
  }

  void PrintText(const Context& context, const node::Changed& changed) const {
    const std::vector<model::SliceCard>& before = changed.before.slice.cards;
    const std::vector<model::SliceCard>& after = changed.after.slice.cards;
    for (std::size_t i = 0; i < after.size(); ++i) {
      context.out << changed.after.slice.name << " on " << ToString(after[i].uuid) << ":";
      if (!text_.memory.empty()) {
        context.out << " " << model::MibText(before[i].memory_bytes) << " -> "
                    << model::MibText(after[i].memory_bytes);
      }
      if (!text_.cores.empty()) {
        context.out << " cores " << before[i].cores << " -> " << after[i].cores
                    << " % (not enforced yet)";
      }
      if (!text_.priority.empty()) {
        context.out << " priority " << model::ToString(changed.before.slice.priority) << " -> "
                    << model::ToString(changed.after.slice.priority) << " (not enforced yet)";
      }
      context.out << "\n";
      if (i < changed.held_bytes.size() && changed.held_bytes[i] > after[i].memory_bytes) {
        context.out
            << "  it holds " << model::MibText(changed.held_bytes[i])
            << ": nothing is taken away, new allocations are refused until it is below the limit\n";
      }
    }
  }

  static void PrintJson(const Context& context, const node::Changed& changed) {
    boost::json::array cards;
    for (std::size_t i = 0; i < changed.after.slice.cards.size(); ++i) {
      const model::SliceCard& before = changed.before.slice.cards[i];
      const model::SliceCard& after = changed.after.slice.cards[i];
      boost::json::object card{{"uuid", ToString(after.uuid)},
                               {"memory_bytes_before", before.memory_bytes},
                               {"memory_bytes", after.memory_bytes},
                               {"cores_before", before.cores},
                               {"cores", after.cores}};
      if (i < changed.held_bytes.size()) {
        card["held_bytes"] = changed.held_bytes[i];
      } else {
        card["held_bytes"] = nullptr;
      }
      cards.push_back(std::move(card));
    }
    context.out << Compact(
        boost::json::object{{"schema", "tessera.limit/1"},
                            {"id", changed.after.slice.id},
                            {"name", changed.after.slice.name},
                            {"priority", model::ToString(changed.after.slice.priority)},
                            {"cards", std::move(cards)}});
  }

  std::string name_;
  node::RequestText text_;
};

}  // namespace

std::unique_ptr<Command> MakeLimit() { return std::make_unique<Limit>(); }

}  // namespace tessera::cli
