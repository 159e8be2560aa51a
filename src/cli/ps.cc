#include "cli/ps.h"

#include <boost/json.hpp>
#include <ostream>

#include "cli/look.h"
#include "cli/ps_view.h"
#include "cli/snapshot_json.h"
#include "cli/terminal.h"

namespace tessera::cli {
namespace {

class Ps : public Command {
 public:
  void Declare(Options&) override {}

  int Run(const Context& context) override {
    Look look;
    const Observed observed = look.Observe(context.state_dir);
    if (context.output == Output::kJson) {
      context.out << Pretty(ObservedJson(observed, "tessera.ps/1"));
    } else {
      if (InsideSlice()) context.out << "Inside a slice: the driver shows this slice only.\n";
      context.out << PsText(observed, TableWidth());
    }
    const watch::Snapshot& snapshot = observed.snapshot;
    return snapshot.state_error || !snapshot.broken.empty() ? kFailed : kOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakePs() { return std::make_unique<Ps>(); }

}  // namespace tessera::cli
