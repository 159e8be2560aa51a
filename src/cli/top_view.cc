#include "cli/top_view.h"

#include <algorithm>

#include "cli/snapshot_json.h"
#include "cli/text.h"

namespace tessera::cli {
namespace {

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kGreen = "\x1b[32m";

std::string Paint(const TopStyle& style, const char* code, const std::string& text) {
  return style.color ? code + text + kReset : text;
}

std::string Bar(std::uint64_t part, std::uint64_t whole, std::size_t width, const TopStyle& style,
                const char* code) {
  std::size_t full = 0;
  if (whole > 0) {
    full = static_cast<std::size_t>(static_cast<double>(std::min(part, whole)) /
                                        static_cast<double>(whole) * static_cast<double>(width) +
                                    0.5);
    if (part > 0 && full == 0) full = 1;
  }
  std::string filled, rest;
  for (std::size_t i = 0; i < full; ++i) filled += style.utf8 ? "\u2588" : "#";
  for (std::size_t i = full; i < width; ++i) rest += style.utf8 ? "\u2591" : "-";
  return Paint(style, code, filled) + Paint(style, kDim, rest);
}

struct Frame {
  std::vector<std::string> lines;
  const TerminalSize& size;
  const TopStyle& style;

  void Plain(const std::string& text) { lines.push_back(Cut(text, size.columns)); }
  void Painted(const char* code, const std::string& text) {
    lines.push_back(Paint(style, code, Cut(text, size.columns)));
  }
};

void AddBar(Frame& frame, const std::string& label, std::uint64_t part, std::uint64_t whole,
            const char* code, const std::string& note) {
  // "  promised  " + bar + " 23,028 / 23,028 MiB 100 %"; the bar takes what is left of the width.
  const std::string figures = Right(Mib(part), 8) + " MiB" + Right(Percent(part, whole), 7) + note;
  const std::size_t used = 12 + 1 + Columns(figures);
  const std::size_t width =
      frame.size.columns > used + 8 ? std::min<std::size_t>(frame.size.columns - used, 60) : 8;
  if (frame.size.columns < used + 8) {
    frame.Plain("  " + Left(label, 9) + " " + figures);
    return;
  }
  frame.lines.push_back("  " + Left(label, 9) + " " + Bar(part, whole, width, frame.style, code) +
                        " " + figures);
}

void AddCard(Frame& frame, const watch::CardFacts& card) {
  if (!card.card) {
    frame.Painted(kRed, "card " + std::to_string(card.index) + "  " + card.card.error().message);
    return;
  }
  std::string title = "card " + std::to_string(card.index) + "  " +
                      watch::Printable(card.card->name) + "  " + Mib(card.card->memory_bytes) +
                      " MiB";
  if (card.usage && card.usage->gpu_percent)
    title += "  gpu " + std::to_string(*card.usage->gpu_percent) + " %";
  if (card.promised_cores > 0)
    title += "  cores promised " + std::to_string(card.promised_cores) + " %";
  frame.Painted(kBold, title);
  const std::uint64_t whole = card.card->memory_bytes;
  AddBar(frame, "promised", card.promised_bytes, whole,
         card.promised_bytes > whole ? kRed : kYellow, "");
  AddBar(frame, "held", card.held_bytes, whole, kGreen, "");
  if (card.usage) {
    AddBar(frame, "driver", card.usage->used_bytes, whole, kGreen, "");
  } else {
    frame.Painted(kRed, "  driver    " + card.usage.error().message);
  }
}

constexpr std::size_t kBarWidth = 12;

void AddSlices(Frame& frame, const watch::Snapshot& snapshot) {
  if (snapshot.slices.empty()) {
    frame.Plain("No slices on this machine.");
    return;
  }
  const std::size_t extra = std::max(frame.size.columns, kTextWidth) - kTextWidth;
  frame.Painted(kBold, Left("SLICE", 16 + extra) + " CARD      HELD / PROMISED " +
                           Left("", kBarWidth) + "  CORES PRIO DENIED FENCE");
  for (const watch::SliceFacts& slice : snapshot.slices) {
    const std::string fence = FenceState(slice);
    for (std::size_t i = 0; i < slice.record.slice.cards.size(); ++i) {
      const model::SliceCard& promise = slice.record.slice.cards[i];
      const bool known = slice.ledger && i < slice.ledger->cards.size();
      const std::uint64_t held = known ? slice.ledger->cards[i].held_bytes : 0;
      std::string index = "?";
      for (const watch::CardFacts& card : snapshot.cards) {
        if (card.card && card.card->uuid == model::ToString(promise.uuid))
          index = std::to_string(card.index);
      }
      const bool full = known && held >= promise.memory_bytes - promise.memory_bytes / 20;
      // Laid out to 80 columns, so that only a terminal narrower than that loses its right side.
      const std::string begin = Left(i == 0 ? slice.record.slice.name : "", 16 + extra) + " " +
                                Right(index, 4) + " " + Right(known ? Mib(held) : "?", 9) + " / " +
                                Right(Mib(promise.memory_bytes), 8) + " ";
      const std::string end =
          "  " + Right(promise.cores ? std::to_string(promise.cores) : "-", 5) + " " +
          Left(model::ToString(slice.record.slice.priority), 4) + " " +
          Right(known ? Thousands(slice.ledger->cards[i].denied_count) : "?", 6) + " " +
          (i == 0 ? fence : "");
      if (frame.size.columns < kTextWidth) {
        frame.Plain(begin + end);
      } else {
        frame.lines.push_back(
            begin + Bar(held, promise.memory_bytes, kBarWidth, frame.style, full ? kRed : kGreen) +
            end);
      }
    }
    for (const std::string& remark : slice.remarks) frame.Painted(kYellow, "  ! " + remark);
  }
}

void AddTrouble(Frame& frame, const Observed& observed) {
  const watch::Snapshot& snapshot = observed.snapshot;
  for (const watch::ForeignProcess& process : snapshot.foreign) {
    frame.Painted(kYellow, "! card " + std::to_string(process.card) + ": pid " +
                               std::to_string(process.pid) + " " +
                               (process.command.empty() ? "(not visible)" : process.command) +
                               " is in no slice, " +
                               (process.bytes ? Mib(*process.bytes) + " MiB" : "size unknown"));
  }
  if (!snapshot.driver) frame.Painted(kRed, "! " + snapshot.driver.error().message);
  if (snapshot.state_error) frame.Painted(kRed, "! state: " + snapshot.state_error->message);
  for (const node::Broken& broken : snapshot.broken) {
    frame.Painted(kRed, "! " + watch::Printable(broken.directory) + ": " +
                            watch::Printable(broken.error.message));
  }
  for (const watch::Finding& finding : observed.findings) frame.Painted(kRed, "! " + finding.text);
}

}  // namespace

std::vector<std::string> TopFrame(const Observed& observed, const TerminalSize& size,
                                  const TopStyle& style, const std::string& clock, bool live) {
  const watch::Snapshot& snapshot = observed.snapshot;
  Frame frame{{}, size, style};
  std::string title = "tessera top  " + clock;
  if (snapshot.driver) title += "  driver " + snapshot.driver->version;
  title += "  slices " + std::to_string(snapshot.slices.size());
  frame.Painted(kBold, title);
  for (const watch::CardFacts& card : snapshot.cards) AddCard(frame, card);
  frame.Plain("");
  AddSlices(frame, snapshot);
  AddTrouble(frame, observed);
  const std::string foot = "MiB. Cores and priority are not enforced yet. ";
  const std::size_t room = size.rows == 0 ? frame.lines.size() + 1 : size.rows;
  if (frame.lines.size() + 1 > room && room >= 2) {
    const std::size_t hidden = frame.lines.size() - (room - 2);
    frame.lines.resize(room - 2);
    frame.Plain("... " + std::to_string(hidden) +
                " more lines: make the window taller, or see `tessera ps`");
  }
  if (frame.lines.size() < room) frame.Painted(kDim, foot + (live ? "q or Ctrl-C leaves." : ""));
  if (frame.lines.size() > room) frame.lines.resize(room);
  return std::move(frame.lines);
}

}  // namespace tessera::cli
