#include "cli/doctor.h"

#include <boost/json.hpp>
#include <ostream>

#include "cli/doctor_view.h"
#include "cli/snapshot_json.h"
#include "cli/terminal.h"
#include "node/launcher.h"

namespace tessera::cli {
namespace {

class Doctor : public Command {
 public:
  void Declare(Options& options) override {
    options.Text("--library", library_, "FILE",
                 "the fence to examine instead of the installed one");
  }

  int Run(const Context& context) override {
    DoctorFacts facts;
    // The trials first: they fork, which has to happen before the driver's library starts threads.
    facts.inside_slice = InsideSlice();
    facts.library = node::FindFenceLibrary(library_);
    if (facts.library) facts.preload = watch::TryPreload(*facts.library);
    facts.namespaces = watch::TryNamespaces();
    Look look;
    facts.observed = look.Observe(context.state_dir);
    if (!facts.observed.snapshot.state_path.empty()) {
      facts.state = watch::LookAtState(facts.observed.snapshot.state_path);
    }
    facts.second_wall = driver::ProbeSecondWall(look.nvml(), driver::HostForSecondWall());
    const std::vector<Check> checks = Examine(facts);
    if (context.output == Output::kJson) {
      context.out << Pretty(DoctorJson(checks, facts));
    } else {
      context.out << DoctorText(checks, facts, TableWidth());
    }
    return ExitCodeOf(checks);
  }

 private:
  std::string library_;
};

}  // namespace

std::unique_ptr<Command> MakeDoctor() { return std::make_unique<Doctor>(); }

}  // namespace tessera::cli
