#include "watch/judge.h"

#include <algorithm>

#include "model/quantity.h"

namespace tessera::watch {
namespace {

std::string Who(const SliceProcess& process) {
  return "pid " + std::to_string(process.process.identity.pid) + " (" + process.process.command +
         ")";
}

bool Same(const Finding& a, const Finding& b) {
  return a.kind == b.kind && a.slice_id == b.slice_id && a.process == b.process;
}

}  // namespace

std::uint64_t Tolerance(std::uint64_t driver_bytes) {
  return std::max<std::uint64_t>(64 * model::kMib, driver_bytes / 16);
}

std::vector<Finding> JudgeSlice(const Snapshot&, const SliceFacts& slice) {
  std::vector<Finding> findings;
  const std::string& name = slice.record.slice.name;
  contract::BypassAction action = slice.record.bypass;
  if (slice.policy && slice.policy->bypass_action <= 2) {
    action = static_cast<contract::BypassAction>(slice.policy->bypass_action);
  }
  const auto add = [&](Bypass kind, const SliceProcess* process, const std::string& text) {
    Finding finding;
    finding.kind = kind;
    finding.slice_id = slice.record.slice.id;
    finding.slice_name = name;
    if (process) {
      finding.process = process->process.identity;
      finding.command = process->process.command;
    }
    finding.text = "slice " + name + ": " + text;
    finding.action = action;
    findings.push_back(std::move(finding));
  };

  const bool ledger_lost = !slice.ledger && slice.ledger.error().code == Code::kDataLoss;
  if (ledger_lost) {
    add(Bypass::kLedgerLost, nullptr,
        "its ledger cannot be believed: " + slice.ledger.error().message);
  }
  for (const SliceProcess& process : slice.processes) {
    bool on_card = !process.other_cards.empty();
    for (std::size_t i = 0; i < process.driver.size(); ++i) {
      if (!process.driver[i]) continue;
      on_card = true;
      const std::uint64_t shown = *process.driver[i];
      if (!slice.ledger || shown <= process.held[i] + Tolerance(shown)) continue;
      add(Bypass::kUncharged, &process,
          Who(process) + " holds " + model::MibText(shown) + " by the driver, " +
              model::MibText(process.held[i]) + " by its ledger");
    }
    for (int card : process.other_cards) {
      add(Bypass::kOtherCard, &process,
          Who(process) + " uses card " + std::to_string(card) + ", which is not in its slice");
    }
    if (process.mapped && !process.mapped->fence && (process.mapped->driver || on_card)) {
      add(Bypass::kNoFence, &process, Who(process) + " uses the card without the fence");
    }
    if (process.policy_is_ours && !*process.policy_is_ours) {
      add(Bypass::kPolicyReplaced, &process,
          Who(process) + " sees another policy than its slice's");
    }
  }
  return findings;
}

std::vector<Finding> Judge(const Snapshot& snapshot) {
  std::vector<Finding> findings;
  for (const SliceFacts& slice : snapshot.slices) {
    for (Finding& finding : JudgeSlice(snapshot, slice)) findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> Confirmer::Confirm(const std::vector<Finding>& findings) {
  std::vector<Finding> confirmed;
  for (const Finding& finding : findings) {
    if (std::any_of(last_.begin(), last_.end(),
                    [&](const Finding& f) { return Same(f, finding); })) {
      confirmed.push_back(finding);
    }
  }
  last_ = findings;
  return confirmed;
}

const char* ToString(Bypass kind) {
  switch (kind) {
    case Bypass::kUncharged:
      return "uncharged";
    case Bypass::kNoFence:
      return "no-fence";
    case Bypass::kOtherCard:
      return "other-card";
    case Bypass::kPolicyReplaced:
      return "policy-replaced";
    case Bypass::kLedgerLost:
      return "ledger-lost";
  }
  return "unknown";
}

const char* ToString(contract::BypassAction action) {
  switch (action) {
    case contract::BypassAction::kReport:
      return "report";
    case contract::BypassAction::kPause:
      return "pause";
    case contract::BypassAction::kKill:
      return "kill";
  }
  return "report";
}

}  // namespace tessera::watch
