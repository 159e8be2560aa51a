#include "cli/ps_view.h"

#include <array>

#include "cli/snapshot_json.h"
#include "cli/text.h"

namespace tessera::cli {
namespace {

// Columns: name, card, promised, held, peak, cores, priority, denied, age, fence = 80 with single
// blanks between.
constexpr std::array<std::size_t, 10> kWidths = {17, 4, 8, 8, 8, 5, 4, 6, 4, 5};

std::string Row(const std::array<std::string, 10>& cells, std::size_t extra) {
  std::string line = Left(cells[0], kWidths[0] + extra);
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const bool word = i == 6 || i == 9;
    line += ' ';
    line += word ? Left(cells[i], kWidths[i]) : Right(cells[i], kWidths[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string CardLabel(const watch::Snapshot& snapshot, const model::Uuid& uuid) {
  const std::string text = model::ToString(uuid);
  for (const watch::CardFacts& facts : snapshot.cards) {
    if (!facts.card) continue;
    if (facts.card->uuid == text) return std::to_string(facts.index);
    for (std::size_t i = 0; i < facts.card->mig.size(); ++i) {
      if (facts.card->mig[i].uuid == text)
        return std::to_string(facts.index) + ":" + std::to_string(i);
    }
  }
  return "?";
}

// "linear 2,000 + context 348" of one card; empty when nothing is held.
std::string Kinds(const node::LedgerView& ledger, std::size_t card, std::size_t cards) {
  std::string text;
  for (std::uint32_t kind = 0; kind < contract::kKinds; ++kind) {
    std::uint64_t sum = 0;
    for (const node::LedgerSlotView& slot : ledger.slots) {
      if (slot.live && slot.held_by_kind.size() >= cards * contract::kKinds) {
        sum += slot.held_by_kind[card * contract::kKinds + kind];
      }
    }
    if (sum > 0) text += (text.empty() ? "" : " + ") + std::string(KindName(kind)) + " " + Mib(sum);
  }
  return text;
}

std::string ProcessLine(const watch::SliceProcess& process, std::size_t width) {
  std::uint64_t held = 0;
  for (std::uint64_t bytes : process.held) held += bytes;
  std::uint64_t driver = 0;
  for (const std::optional<std::uint64_t>& bytes : process.driver) driver += bytes.value_or(0);
  std::string figures = process.slot ? Mib(held) + " MiB"
                        : driver > 0 ? "by the driver " + Mib(driver) + " MiB"
                                     : "no card memory";
  if (process.process.state == 'T') figures += ", stopped";
  const std::string pid = "    " + Right(std::to_string(process.process.identity.pid), 7) + " ";
  return pid + CommandLine(process.command_line, width - Columns(pid) - Columns(figures) - 1) +
         " " + figures + "\n";
}

std::string SliceText(const watch::Snapshot& snapshot, const watch::SliceFacts& slice,
                      std::size_t width) {
  std::string text;
  const std::vector<model::SliceCard>& cards = slice.record.slice.cards;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const bool known = slice.ledger && i < slice.ledger->cards.size();
    const node::LedgerCardView held = known ? slice.ledger->cards[i] : node::LedgerCardView{};
    text += Row(
        {i == 0 ? slice.record.slice.name : "", CardLabel(snapshot, cards[i].uuid),
         Mib(cards[i].memory_bytes), known ? Mib(held.held_bytes) : "?",
         known ? Mib(held.peak_bytes) : "?", cards[i].cores ? std::to_string(cards[i].cores) : "-",
         model::ToString(slice.record.slice.priority), known ? Thousands(held.denied_count) : "?",
         i == 0 ? Age(snapshot.taken_s - slice.record.created_s) : "",
         i == 0 ? FenceState(slice) : ""},
        width - kTextWidth);
    const std::string kinds = known ? Kinds(*slice.ledger, i, cards.size()) : "";
    if (i == 0) {
      text +=
          Cut("    id " + slice.record.slice.id + "  user " + std::to_string(slice.record.owner) +
                  (kinds.empty() ? "" : "  held: " + kinds),
              width) +
          "\n";
    } else if (!kinds.empty()) {
      text += Cut("    held: " + kinds, width) + "\n";
    }
  }
  for (const watch::SliceProcess& process : slice.processes) text += ProcessLine(process, width);
  if (slice.record.fencing == node::Fencing::kEnvironment) {
    text += Wrapped(
        "  ! fenced by environment only: a process that drops its environment is not fenced", width,
        "    ");
  }
  for (const std::string& remark : slice.remarks) text += Wrapped("  ! " + remark, width, "    ");
  return text;
}

}  // namespace

std::string PsText(const Observed& observed, std::size_t width) {
  const watch::Snapshot& snapshot = observed.snapshot;
  if (width < kTextWidth) width = kTextWidth;
  std::string text;
  if (snapshot.state_error)
    text += Wrapped("! state: " + snapshot.state_error->message, width, "  ");
  if (!snapshot.state_note.empty()) text += Wrapped(snapshot.state_note, width, "  ");
  if (snapshot.slices.empty()) {
    text += "No slices on this machine.\n";
  } else {
    text +=
        Row({"NAME", "CARD", "PROMISED", "HELD", "PEAK", "CORES", "PRIO", "DENIED", "AGE", "FENCE"},
            width - kTextWidth);
    for (const watch::SliceFacts& slice : snapshot.slices)
      text += SliceText(snapshot, slice, width);
    text += "Memory in MiB. Cores and priority are recorded and shown, not enforced yet.\n";
  }
  if (!snapshot.foreign.empty()) {
    text += "\nForeign processes (in no slice):\n";
    for (const watch::ForeignProcess& process : snapshot.foreign) {
      const std::string figures = process.bytes ? Mib(*process.bytes) + " MiB" : "unknown";
      const std::string begin = "  card " + std::to_string(process.card) + " " +
                                Right(std::to_string(process.pid), 7) + " ";
      const std::string command =
          process.command.empty() ? "(not visible from here)" : process.command;
      text += begin + Left(command, width - Columns(begin) - Columns(figures) - 1) + " " + figures +
              "\n";
    }
  }
  if (!snapshot.driver)
    text += Wrapped("! driver: " + snapshot.driver.error().message, width, "  ");
  for (const watch::CardFacts& card : snapshot.cards) {
    if (!card.card) {
      text += Wrapped("! " + card.card.error().message, width, "  ");
    } else if (!card.usage) {
      text += Wrapped("! " + card.usage.error().message, width, "  ");
    }
  }
  for (const node::Broken& broken : snapshot.broken) {
    text += Wrapped(
        "! " + watch::Printable(broken.directory) + ": " + watch::Printable(broken.error.message),
        width, "  ");
  }
  for (const watch::Finding& finding : observed.findings) {
    text += Wrapped("! " + finding.text, width, "  ");
  }
  return text;
}

}  // namespace tessera::cli
