#include "cli/doctor_view.h"

#include <algorithm>
#include <boost/json.hpp>

#include "cli/guarantees.h"
#include "cli/snapshot_json.h"
#include "cli/text.h"

namespace tessera::cli {
namespace {

const char* Word(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "error";
}

node::Fencing FencingHere(const DoctorFacts& facts) {
  return facts.namespaces ? node::Fencing::kNamespace : node::Fencing::kEnvironment;
}

Check DriverCheck(const watch::Snapshot& snapshot) {
  if (!snapshot.driver) {
    return {"driver",
            Level::kError,
            snapshot.driver.error().message,
            {"Without a driver nothing can be promised. Install NVIDIA's driver, or check that "
             "this container was "
             "given the card."}};
  }
  std::string text = "driver " + snapshot.driver->version;
  if (snapshot.driver->cuda_version > 0) {
    text += ", CUDA " + std::to_string(snapshot.driver->cuda_version / 1000) + "." +
            std::to_string(snapshot.driver->cuda_version % 1000 / 10);
  }
  return {"driver", Level::kOk, text, {snapshot.driver->library}};
}

Check CardsCheck(const watch::Snapshot& snapshot) {
  Check check{
      "cards",
      Level::kOk,
      std::to_string(snapshot.cards.size()) + " card" + (snapshot.cards.size() == 1 ? "" : "s"),
      {}};
  if (snapshot.cards.empty()) {
    check.level = Level::kError;
    check.text = "no card";
  }
  for (const watch::CardFacts& card : snapshot.cards) {
    if (!card.card) {
      check.level = Level::kError;
      check.details.push_back(card.card.error().message);
      continue;
    }
    std::string line = "card " + std::to_string(card.index) + " " +
                       watch::Printable(card.card->name) + ", " + Mib(card.card->memory_bytes) +
                       " MiB, promised " + Mib(card.promised_bytes) + " MiB to " +
                       std::to_string(card.slices) + " slice" + (card.slices == 1 ? "" : "s");
    if (card.card->mig_enabled) line += ", MIG on";
    check.details.push_back(line);
    if (!card.usage) {
      check.level = Level::kError;
      check.details.push_back(card.usage.error().message);
    }
    if (card.promised_bytes > card.card->memory_bytes) {
      check.level = std::max(check.level, Level::kWarning);
      check.details.push_back("card " + std::to_string(card.index) + " promises more than it has");
    }
  }
  return check;
}

Check LibraryCheck(const DoctorFacts& facts) {
  if (!facts.library) {
    return {"fence-library",
            Level::kError,
            facts.library.error().message,
            {"No slice can be started without it."}};
  }
  if (!facts.preload) {
    return {"fence-library",
            Level::kError,
            "the fence does not load: " + watch::Printable(facts.preload.error().message),
            {*facts.library}};
  }
  return {"fence-library", Level::kOk, "the fence loads into a program", {*facts.library}};
}

Check NamespaceCheck(const DoctorFacts& facts) {
  if (facts.namespaces) {
    return {"namespaces", Level::kOk, "slices get a mount namespace of their own", {}};
  }
  return {
      "namespaces",
      Level::kWarning,
      "no mount namespace: " + watch::Printable(facts.namespaces.error().message),
      {"Slices are fenced by environment variables only; `tessera run --require-fence` refuses.",
       "As root it works, or where user namespaces are allowed (sysctl "
       "kernel.unprivileged_userns_clone=1 on "
       "Debian kernels, kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)."}};
}

Check StateCheck(const DoctorFacts& facts) {
  const watch::Snapshot& snapshot = facts.observed.snapshot;
  if (snapshot.state_error)
    return {"state", Level::kError, "state directory: " + snapshot.state_error->message, {}};
  if (!facts.state) return {"state", Level::kOk, "nothing was promised on this machine yet", {}};
  if (!facts.state->writable) {
    return {"state",
            Level::kError,
            facts.state->path + ": you may not write there, so you cannot start slices",
            {}};
  }
  Check check{"state", Level::kOk, facts.state->path + ", writable", {}};
  if (!facts.state->by_all) {
    check.level = Level::kNote;
    check.text += " for you and not for everybody";
  }
  if (!snapshot.state_note.empty()) {
    check.level = Level::kWarning;
    check.details.push_back(snapshot.state_note);
  }
  return check;
}

Check SlicesCheck(const watch::Snapshot& snapshot) {
  const std::size_t count = snapshot.slices.size();
  Check check{"slices",
              Level::kOk,
              count == 0 ? "no slices" : std::to_string(count) + " slice" + (count == 1 ? "" : "s"),
              {}};
  for (const watch::SliceFacts& slice : snapshot.slices) {
    const std::string state = FenceState(slice);
    std::size_t slots = 0;
    for (const watch::SliceProcess& process : slice.processes) slots += process.slot ? 1 : 0;
    check.details.push_back(slice.record.slice.name + ": fence " + state + ", " +
                            std::to_string(slice.processes.size()) + " process" +
                            (slice.processes.size() == 1 ? "" : "es") + ", " +
                            std::to_string(slots) + " with a ledger slot");
    if (state == "hole") check.level = Level::kError;
    for (const watch::SliceProcess& process : slice.processes) {
      const std::string who = slice.record.slice.name + ": pid " +
                              std::to_string(process.process.identity.pid) + " (" +
                              process.process.command + ")";
      if (process.mapped && process.mapped->driver && !process.mapped->fence) {
        check.details.push_back(who + " has the driver loaded and not the fence");
      } else if (process.slot && process.mapped && !process.mapped->ledger) {
        check.level = std::max(check.level, Level::kWarning);
        check.details.push_back(who + " has a ledger slot and not the ledger mapped");
      }
    }
    if (slice.record.fencing == node::Fencing::kEnvironment) {
      check.level = std::max(check.level, Level::kWarning);
      check.details.push_back(slice.record.slice.name + ": fenced by environment only");
    }
    for (const std::string& remark : slice.remarks) {
      check.level =
          std::max(check.level, remark == watch::kHiddenLedger ? Level::kNote : Level::kWarning);
      check.details.push_back(slice.record.slice.name + ": " + remark);
    }
  }
  for (const node::Broken& broken : snapshot.broken) {
    check.level = Level::kError;
    check.details.push_back(watch::Printable(broken.directory) + ": " +
                            watch::Printable(broken.error.message));
  }
  return check;
}

Check ForeignCheck(const watch::Snapshot& snapshot) {
  if (snapshot.foreign.empty())
    return {"foreign", Level::kOk, "no foreign process on the cards", {}};
  Check check{"foreign",
              Level::kWarning,
              std::to_string(snapshot.foreign.size()) + " process" +
                  (snapshot.foreign.size() == 1 ? "" : "es") +
                  " on the cards in no slice: nothing limits what they take",
              {}};
  for (const watch::ForeignProcess& process : snapshot.foreign) {
    check.details.push_back(
        "card " + std::to_string(process.card) + ": pid " + std::to_string(process.pid) + " " +
        (process.command.empty() ? "(not visible from here)" : process.command) + ", " +
        (process.bytes ? Mib(*process.bytes) + " MiB" : "size unknown"));
  }
  return check;
}

Check BypassCheck(const DoctorFacts& facts) {
  if (!facts.observed.snapshot.driver)
    return {"bypass", Level::kNote, "bypass: not measured without a driver", {}};
  if (facts.observed.findings.empty()) {
    return {"bypass", Level::kOk, "the driver's figures agree with the ledgers", {}};
  }
  Check check{"bypass", Level::kError, "a process goes round its fence", {}};
  for (const watch::Finding& finding : facts.observed.findings)
    check.details.push_back(finding.text);
  return check;
}

Check WallCheck(const DoctorFacts& facts) {
  if (facts.second_wall.available)
    return {"second-wall", Level::kOk, "second wall: the driver limits each slice's cgroup", {}};
  return {"second-wall", Level::kNote, "no second wall: " + facts.second_wall.reason, {}};
}

}  // namespace

std::vector<Check> Examine(const DoctorFacts& facts) {
  const watch::Snapshot& snapshot = facts.observed.snapshot;
  std::vector<Check> checks;
  if (facts.inside_slice) {
    checks.push_back({"inside",
                      Level::kWarning,
                      "this shell is inside a slice: what follows is the slice's view",
                      {}});
  }
  checks.push_back(DriverCheck(snapshot));
  if (snapshot.driver) checks.push_back(CardsCheck(snapshot));
  checks.push_back(LibraryCheck(facts));
  checks.push_back(NamespaceCheck(facts));
  checks.push_back(StateCheck(facts));
  checks.push_back(SlicesCheck(snapshot));
  checks.push_back(ForeignCheck(snapshot));
  checks.push_back(BypassCheck(facts));
  checks.push_back(WallCheck(facts));
  return checks;
}

int ExitCodeOf(const std::vector<Check>& checks) {
  Level worst = Level::kOk;
  for (const Check& check : checks) worst = std::max(worst, check.level);
  return worst == Level::kError ? 2 : worst == Level::kWarning ? 1 : 0;
}

std::string DoctorText(const std::vector<Check>& checks, const DoctorFacts& facts,
                       std::size_t width) {
  std::string text;
  for (const Check& check : checks) {
    text += Wrapped(Left(Word(check.level), 8) + check.text, width, "        ");
    for (const std::string& detail : check.details) {
      std::string line = Wrapped(detail, width - 10, "  ");
      for (std::size_t at = 0; at < line.size(); at = line.find('\n', at) + 1) {
        line.insert(at, "          ");
      }
      text += line;
    }
  }
  text += "\nNot enforced yet: compute share and priority; they are recorded and shown.\n";
  text += "Cannot be prevented here, found within 30 s and answered by the slice's policy:\n";
  for (const std::string& line : NotPrevented(FencingHere(facts)))
    text += Wrapped("  - " + line, width, "    ");
  return text;
}

boost::json::object DoctorJson(const std::vector<Check>& checks, const DoctorFacts& facts) {
  boost::json::object object = ObservedJson(facts.observed, "tessera.doctor/1");
  boost::json::array array;
  for (const Check& check : checks) {
    boost::json::array details;
    for (const std::string& detail : check.details) details.push_back(boost::json::string(detail));
    boost::json::object one;
    one["id"] = check.id;
    one["level"] = Word(check.level);
    one["text"] = check.text;
    one["details"] = std::move(details);
    array.push_back(std::move(one));
  }
  object["checks"] = std::move(array);
  object["exit_code"] = ExitCodeOf(checks);
  boost::json::array not_prevented;
  for (const std::string& line : NotPrevented(FencingHere(facts)))
    not_prevented.push_back(boost::json::string(line));
  object["not_prevented"] = std::move(not_prevented);
  return object;
}

}  // namespace tessera::cli
