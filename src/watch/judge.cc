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

// The host wrote the ledger beside the policy: where the policy can be read, a ledger that is
// missing, cut, or of another layout is the tenant's doing. A reader that may not see it, or is
// older than both files, accuses nobody.
bool LedgerLost(const SliceFacts& slice) {
  if (slice.ledger) return false;
  switch (slice.ledger.error().code) {
    case Code::kDataLoss:
      return true;
    case Code::kUnimplemented:
    case Code::kNotFound:
      return slice.policy.has_value();
    default:
      return false;
  }
}

}  // namespace

std::uint64_t Tolerance(std::uint64_t driver_bytes) {
  return std::max<std::uint64_t>(64 * model::kMib, driver_bytes / 16);
}

std::uint64_t SliceTolerance(std::uint64_t bytes) {
  return std::max<std::uint64_t>(256 * model::kMib, bytes / 8);
}

namespace {

bool IsUncharged(const SliceProcess& process, std::size_t card) {
  const std::uint64_t shown = *process.driver[card];
  return shown > process.held[card] + Tolerance(shown);
}

// What many processes hold uncharged that each stay below the tolerance; empty where that is within
// reason.
std::string TogetherUncharged(const SliceFacts& slice, std::size_t card) {
  std::uint64_t shown = 0, uncharged = 0, most = 0;
  const SliceProcess* worst = nullptr;
  for (const SliceProcess& process : slice.processes) {
    if (card >= process.driver.size() || !process.driver[card]) continue;
    if (IsUncharged(process, card)) return {};  // named by itself
    const std::uint64_t bytes = *process.driver[card];
    const std::uint64_t gap = bytes - std::min(bytes, process.held[card]);
    shown += bytes;
    uncharged += gap;
    if (gap > most) worst = &process;
    most = std::max(most, gap);
  }
  if (worst == nullptr || uncharged <= SliceTolerance(shown)) return {};
  return "its processes hold " + model::MibText(uncharged) +
         " more together by the driver than by their ledger, the most " + Who(*worst);
}

}  // namespace

std::vector<Finding> JudgeSlice(const SliceFacts& slice) {
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

  const bool lost = LedgerLost(slice);
  if (lost) {
    add(Bypass::kLedgerLost, nullptr,
        "its ledger cannot be believed: " + slice.ledger.error().message);
  }
  for (const SliceProcess& process : slice.processes) {
    bool on_card = !process.other_cards.empty();
    for (std::size_t i = 0; i < process.driver.size(); ++i) {
      if (!process.driver[i]) continue;
      on_card = true;
      // A ledger that was destroyed admits nothing.
      if ((!slice.ledger && !lost) || !IsUncharged(process, i)) continue;
      add(Bypass::kUncharged, &process,
          Who(process) + " holds " + model::MibText(*process.driver[i]) + " by the driver, " +
              model::MibText(process.held[i]) + " by its ledger");
    }
    for (int card : process.other_cards) {
      add(Bypass::kOtherCard, &process,
          Who(process) + " uses card " + std::to_string(card) + ", which is not in its slice");
    }
    if (process.mapped && process.mapped->whole && !process.mapped->fence &&
        (process.mapped->driver || on_card)) {
      add(Bypass::kNoFence, &process, Who(process) + " uses the card without the fence");
    }
    if (process.policy_is_ours && !*process.policy_is_ours) {
      add(Bypass::kPolicyReplaced, &process,
          Who(process) + " sees another policy than its slice's");
    }
  }
  for (std::size_t i = 0; slice.ledger && i < slice.record.slice.cards.size(); ++i) {
    if (const std::string text = TogetherUncharged(slice, i); !text.empty()) {
      // As below: a sum accuses nobody.
      add(Bypass::kUncharged, nullptr, text);
    }
  }
  const bool named = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.process.pid != 0 &&
           (finding.kind == Bypass::kUncharged || finding.kind == Bypass::kNoFence);
  });
  // A tenant that admits in its ledger what it took past the fence is over its limit all the same.
  for (std::size_t i = 0; !named && i < slice.record.slice.cards.size(); ++i) {
    std::uint64_t sum = 0;
    const SliceProcess* largest = nullptr;
    for (const SliceProcess& process : slice.processes) {
      if (i >= process.driver.size() || !process.driver[i]) continue;
      sum += *process.driver[i];
      if (!largest || *process.driver[i] > *largest->driver[i]) largest = &process;
    }
    if (!largest) continue;
    const std::uint64_t most = slice.record.MostBytes(i), alone = *largest->driver[i];
    const std::string promised = " by the driver, promised " + model::MibText(most) + " at most";
    if (alone > most + Tolerance(alone)) {
      add(Bypass::kOverLimit, largest,
          Who(*largest) + " holds " + model::MibText(alone) + promised);
    } else if (sum > most + Tolerance(sum)) {
      // Memory that processes share may stand in the figure of each: a sum accuses nobody.
      add(Bypass::kOverLimit, nullptr,
          "its processes hold " + model::MibText(sum) + " together" + promised);
    }
  }
  return findings;
}

std::vector<Finding> Judge(const Snapshot& snapshot) {
  std::vector<Finding> findings;
  for (const SliceFacts& slice : snapshot.slices) {
    for (Finding& finding : JudgeSlice(slice)) findings.push_back(std::move(finding));
  }
  return findings;
}

bool Confirmer::Waits(const std::vector<Finding>& findings) const {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return std::none_of(last_.begin(), last_.end(),
                        [&](const Finding& f) { return Same(f, finding); });
  });
}

std::vector<Finding> InBoth(const std::vector<Finding>& first, const std::vector<Finding>& second) {
  std::vector<Finding> both;
  for (const Finding& finding : second) {
    if (std::any_of(first.begin(), first.end(),
                    [&](const Finding& f) { return Same(f, finding); })) {
      both.push_back(finding);
    }
  }
  return both;
}

std::vector<Finding> Confirmer::Confirm(const std::vector<Finding>& findings) {
  std::vector<Finding> confirmed = InBoth(last_, findings);
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
    case Bypass::kOverLimit:
      return "over-limit";
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
