#include "cli/explain_view.h"

#include <algorithm>
#include <boost/json.hpp>

#include "cli/guarantees.h"
#include "cli/snapshot_json.h"
#include "cli/text.h"
#include "model/quantity.h"

namespace tessera::cli {
namespace {

namespace json = boost::json;

bool Chosen(const model::Card& card, const placement::Placement& placement) {
  return std::any_of(placement.chosen.begin(), placement.chosen.end(),
                     [&](const model::SliceCard& chosen) { return chosen.uuid == card.uuid; });
}

std::string Rule(model::Policy policy) {
  return policy == model::Policy::kBinpack
             ? "binpack: the fullest card that fits; ties go to the lower index"
             : "spread: the emptiest card that fits; ties go to the lower index";
}

std::string Asked(const model::Request& request) {
  std::string text = request.memory_bytes ? model::MibText(*request.memory_bytes)
                     : request.memory_percent
                         ? std::to_string(*request.memory_percent) + " % of the card's memory"
                         : std::string("the whole card's memory");
  if (request.cores > 0) text += ", " + std::to_string(request.cores) + " % of the cores";
  if (request.card_count > 1)
    text += ", on each of " + std::to_string(request.card_count) + " cards";
  return text;
}

const watch::CardFacts* CardOf(const watch::Snapshot& snapshot, const model::Uuid& uuid) {
  const std::string text = model::ToString(uuid);
  for (const watch::CardFacts& facts : snapshot.cards) {
    if (facts.card && facts.card->uuid == text) return &facts;
  }
  return nullptr;
}

std::vector<watch::Finding> FindingsOf(const Observed& observed, const watch::SliceFacts& slice) {
  std::vector<watch::Finding> own;
  for (const watch::Finding& finding : observed.findings) {
    if (finding.slice_id == slice.record.slice.id) own.push_back(finding);
  }
  return own;
}

}  // namespace

std::string FitText(const model::Node& node, const model::Request& request,
                    const placement::Placement& placement, std::size_t width) {
  std::string text = "Asked: " + Asked(request) + "\n";
  text += "Rule:  " + Rule(request.policy) + "\n\n";
  text += "CARD NAME                      TOTAL    FREE SLICES  VERDICT\n";
  for (std::size_t i = 0; i < placement.verdicts.size() && i < node.cards.size(); ++i) {
    const placement::CardVerdict& verdict = placement.verdicts[i];
    const model::Card& card = node.cards[i];
    const std::string begin =
        Right(std::to_string(verdict.index), 4) + " " + Left(watch::Printable(card.name), 22) +
        Right(Mib(verdict.total_bytes), 9) + Right(Mib(verdict.free_bytes), 8) +
        Right(std::to_string(verdict.slices), 7) + "  ";
    if (verdict.fits) {
      text += begin + (Chosen(card, placement) ? "goes here" : "fits") + "\n";
    } else {
      text += begin + "no\n" + Wrapped("     " + verdict.reason, width, "     ");
    }
  }
  text += "\n";
  if (placement.chosen.empty()) {
    text += Wrapped("It does not fit: " + placement.refusal, width, "  ");
  } else {
    text += "It fits. Nothing was promised by this; `tessera run` does.\n";
  }
  return text + "Memory in MiB, after promises (not after use).\n";
}

json::object FitJson(const model::Node& node, const model::Request& request,
                     const placement::Placement& placement) {
  json::object object;
  object["schema"] = "tessera.explain-fit/1";
  object["fits"] = !placement.chosen.empty();
  object["refusal"] =
      placement.refusal.empty() ? json::value(nullptr) : json::value(placement.refusal);
  object["asked_wrongly"] = placement.asked_wrongly;
  object["rule"] = model::ToString(request.policy);
  object["card_count"] = request.card_count;
  json::array cards;
  for (std::size_t i = 0; i < placement.verdicts.size() && i < node.cards.size(); ++i) {
    const placement::CardVerdict& verdict = placement.verdicts[i];
    json::object card;
    card["index"] = verdict.index;
    card["uuid"] = model::ToString(node.cards[i].uuid);
    card["name"] = watch::Printable(node.cards[i].name);
    card["fits"] = verdict.fits;
    card["chosen"] = Chosen(node.cards[i], placement);
    card["reason"] = verdict.reason.empty() ? json::value(nullptr) : json::value(verdict.reason);
    card["asked_bytes"] = verdict.asked_bytes;
    card["free_bytes"] = verdict.free_bytes;
    card["total_bytes"] = verdict.total_bytes;
    card["asked_cores"] = verdict.asked_cores;
    card["free_cores"] = verdict.free_cores;
    card["slices"] = verdict.slices;
    cards.push_back(std::move(card));
  }
  object["cards"] = std::move(cards);
  return object;
}

std::string SliceText(const Observed& observed, const watch::SliceFacts& slice,
                      const driver::SecondWallProbe& wall, std::size_t width) {
  const node::SliceRecord& record = slice.record;
  std::string text = Wrapped("Slice " + record.slice.name + " (" + record.slice.id + "), " +
                                 Age(observed.snapshot.taken_s - record.created_s) + " old",
                             width, "  ");
  text += Cut("  " + watch::Printable(record.command), width) + "\n\nWhere it sits\n";
  for (std::size_t i = 0; i < record.slice.cards.size(); ++i) {
    const model::SliceCard& promise = record.slice.cards[i];
    const watch::CardFacts* card = CardOf(observed.snapshot, promise.uuid);
    std::string line =
        card ? "card " + std::to_string(card->index) + " " + watch::Printable(card->card->name)
             : "a card that the driver does not show now";
    line += " (" + model::ToString(promise.uuid) + "): " + model::MibText(promise.memory_bytes);
    if (promise.cores > 0) line += ", " + std::to_string(promise.cores) + " % of the cores";
    text += Wrapped("  " + line, width, "    ");
    if (card) {
      text += Wrapped("  that card has " + Mib(card->card->memory_bytes) + " MiB, of which " +
                          Mib(card->promised_bytes) + " are promised to " +
                          std::to_string(card->slices) + " slice" + (card->slices == 1 ? "" : "s"),
                      width, "    ");
    }
    if (slice.ledger && i < slice.ledger->cards.size()) {
      const node::LedgerCardView& held = slice.ledger->cards[i];
      text += Wrapped(
          "  it holds " + model::MibText(held.held_bytes) + ", at most " +
              model::MibText(held.peak_bytes) + " so far; " + Thousands(held.denied_count) +
              (held.denied_count == 1 ? " request was refused" : " requests were refused") +
              (held.denied_count ? ", the last one of " + model::MibText(held.denied_bytes) : ""),
          width, "    ");
    }
  }
  text += Wrapped(
      "  Rule: the sum of promises never exceeds a card; the card was chosen when the slice was "
      "made and does "
      "not change.",
      width, "    ");
  text += "\nWhat each promise is worth here\n";
  for (const Guarantee& guarantee : Guarantees(record.fencing, wall)) {
    text += Wrapped(
        "  " + Left(guarantee.held ? "yes" : "no", 5) + guarantee.what + ": " + guarantee.worth,
        width, "       ");
  }
  text += "\nCannot be prevented (found within 30 s; this slice's answer is " +
          std::string(watch::ToString(record.bypass)) + ")\n";
  for (const std::string& line : NotPrevented(record.fencing))
    text += Wrapped("  - " + line, width, "    ");
  for (const std::string& remark : slice.remarks) text += Wrapped("! " + remark, width, "  ");
  for (const watch::Finding& finding : FindingsOf(observed, slice))
    text += Wrapped("! " + finding.text, width, "  ");
  return text;
}

json::object SliceJson(const Observed& observed, const watch::SliceFacts& slice,
                       const driver::SecondWallProbe& wall) {
  watch::Snapshot one = observed.snapshot;
  one.slices = {slice};
  json::object object;
  object["schema"] = "tessera.explain-slice/1";
  object["slice"] = SlicesJson(one)[0];
  json::array guarantees;
  for (const Guarantee& guarantee : Guarantees(slice.record.fencing, wall)) {
    json::object row;
    row["what"] = guarantee.what;
    row["held"] = guarantee.held;
    row["worth"] = guarantee.worth;
    guarantees.push_back(std::move(row));
  }
  object["guarantees"] = std::move(guarantees);
  json::array not_prevented;
  for (const std::string& line : NotPrevented(slice.record.fencing))
    not_prevented.push_back(json::string(line));
  object["not_prevented"] = std::move(not_prevented);
  object["findings"] = FindingsJson(FindingsOf(observed, slice));
  return object;
}

}  // namespace tessera::cli
