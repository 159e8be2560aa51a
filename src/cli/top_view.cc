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
  // Over as many lines as it takes; a window too narrow to read in gets one.
  void Wrap(const char* code, const std::string& text) {
    constexpr std::size_t kReadable = 40;
    if (size.columns < kReadable) return Painted(code, text);
    const std::string wrapped = Wrapped(text, size.columns, "    ");
    for (std::size_t at = 0; at < wrapped.size();) {
      const std::size_t end = wrapped.find('\n', at);
      Painted(code, wrapped.substr(at, end - at));
      at = end + 1;
    }
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

// Everything about a card in one line, for windows that have no room for bars.
std::string CardInOneLine(const watch::CardFacts& card) {
  const std::uint64_t whole = card.card->memory_bytes;
  std::string text = "card " + std::to_string(card.index) + "  held " + Mib(card.held_bytes) +
                     " of " + Mib(whole) + " MiB, promised " + Percent(card.promised_bytes, whole);
  if (card.usage) text += ", driver " + Percent(card.usage->used_bytes, whole);
  return text + "  " + watch::Printable(card.card->name);
}

void AddCard(Frame& frame, const watch::CardFacts& card, bool compact) {
  if (!card.card) {
    frame.Painted(kRed, "card " + std::to_string(card.index) + "  " + card.card.error().message);
    return;
  }
  const std::uint64_t whole = card.card->memory_bytes;
  if (compact) {
    frame.Painted(card.promised_bytes > whole ? kRed : kBold, CardInOneLine(card));
    return;
  }
  std::string title = "card " + std::to_string(card.index) + "  " +
                      watch::Printable(card.card->name) + "  " + Mib(whole) + " MiB";
  if (card.usage && card.usage->gpu_percent)
    title += "  gpu " + std::to_string(*card.usage->gpu_percent) + " %";
  if (card.promised_cores > 0)
    title += "  cores promised " + std::to_string(card.promised_cores) + " %";
  frame.Painted(kBold, title);
  AddBar(frame, "promised", card.promised_bytes, whole,
         card.promised_bytes > whole ? kRed : kYellow, "");
  AddBar(frame, "held", card.held_bytes, whole, kGreen, "");
  if (card.usage) {
    AddBar(frame, "driver", card.usage->used_bytes, whole, kGreen, "");
  } else {
    frame.Painted(kRed, "  driver    " + card.usage.error().message);
  }
}

// What a window has room for. Widths: the name, then " CARD      HELD / PROMISED" of 26 columns, a
// bar with a blank before it, " CORES PRIO DENIED" of 18 with two blanks, and the fence.
struct SliceLayout {
  std::size_t name = 16, bar = 12;
  bool figures = true;  // cores, priority, denied
};

constexpr std::size_t kHeldColumns = 26, kFigureColumns = 18, kFenceColumns = 6;
constexpr std::size_t kShortestName = 6, kLongestBar = 40;

SliceLayout LayoutFor(std::size_t columns, const watch::Snapshot& snapshot) {
  SliceLayout layout;
  std::size_t longest = layout.name;
  for (const watch::SliceFacts& slice : snapshot.slices)
    longest = std::max(longest, Columns(slice.record.slice.name));
  std::size_t fixed = kHeldColumns + kFigureColumns + kFenceColumns;
  if (columns >= kTextWidth) {
    // The longest name first, then a longer bar.
    std::size_t left = columns - kTextWidth;
    const std::size_t more_name = std::min(left, longest - layout.name);
    layout.name += more_name;
    layout.bar = std::min(kLongestBar, layout.bar + left - more_name);
    return layout;
  }
  layout.bar = 0;
  if (columns < fixed + layout.name) {
    layout.figures = false;
    fixed -= kFigureColumns;
  }
  layout.name = std::clamp(columns > fixed ? columns - fixed : 0, kShortestName, layout.name);
  return layout;
}

std::string CardIndex(const watch::Snapshot& snapshot, const model::Uuid& uuid) {
  const std::string text = model::ToString(uuid);
  for (const watch::CardFacts& card : snapshot.cards) {
    if (card.card && card.card->uuid == text) return std::to_string(card.index);
  }
  return "?";
}

void AddSlice(Frame& frame, const watch::Snapshot& snapshot, const watch::SliceFacts& slice,
              const SliceLayout& layout) {
  for (std::size_t i = 0; i < slice.record.slice.cards.size(); ++i) {
    const model::SliceCard& promise = slice.record.slice.cards[i];
    const bool known = slice.ledger && i < slice.ledger->cards.size();
    const std::uint64_t held = known ? slice.ledger->cards[i].held_bytes : 0;
    const bool full = known && held >= promise.memory_bytes - promise.memory_bytes / 20;
    std::string line = Left(i == 0 ? slice.record.slice.name : "", layout.name) + " " +
                       Right(CardIndex(snapshot, promise.uuid), 4) + " " +
                       Right(known ? Mib(held) : "?", 9) + " / " +
                       Right(Mib(promise.memory_bytes), 8);
    std::string end;
    if (layout.figures) {
      end += " " + Right(promise.cores ? std::to_string(promise.cores) : "-", 5) + " " +
             Left(model::ToString(slice.record.slice.priority), 4) + " " +
             Right(known ? Thousands(slice.ledger->cards[i].denied_count) : "?", 6);
    }
    if (i == 0) end += " " + FenceState(slice);
    if (layout.bar == 0) {
      frame.Plain(line + end);
    } else {
      line += " " + Bar(held, promise.memory_bytes, layout.bar, frame.style, full ? kRed : kGreen);
      frame.lines.push_back(line + " " + end);
    }
  }
  for (const std::string& remark : slice.remarks) frame.Wrap(kYellow, "  ! " + remark);
}

void AddSlices(Frame& frame, const watch::Snapshot& snapshot) {
  if (snapshot.slices.empty()) {
    frame.Plain("No slices on this machine.");
    return;
  }
  const SliceLayout layout = LayoutFor(frame.size.columns, snapshot);
  std::string header = Left("SLICE", layout.name) + " CARD      HELD / PROMISED";
  if (layout.bar > 0) header += Left("", layout.bar + 2);
  if (layout.figures) header += " CORES PRIO DENIED";
  frame.Painted(kBold, header + " FENCE");
  for (const watch::SliceFacts& slice : snapshot.slices) AddSlice(frame, snapshot, slice, layout);
}

// The worst first: windows lose their last lines.
void AddTrouble(Frame& frame, const Observed& observed) {
  const watch::Snapshot& snapshot = observed.snapshot;
  for (const watch::Finding& finding : observed.findings) frame.Wrap(kRed, "! " + finding.text);
  if (!snapshot.driver) frame.Wrap(kRed, "! " + snapshot.driver.error().message);
  if (snapshot.state_error) frame.Wrap(kRed, "! state: " + snapshot.state_error->message);
  for (const node::Broken& broken : snapshot.broken) {
    frame.Wrap(kRed, "! " + watch::Printable(broken.directory) + ": " +
                         watch::Printable(broken.error.message));
  }
  for (const watch::ForeignProcess& process : snapshot.foreign) {
    frame.Painted(kYellow, "! card " + std::to_string(process.card) + ": " +
                               (process.bytes ? Mib(*process.bytes) + " MiB" : "unknown size") +
                               " in no slice: pid " + std::to_string(process.pid) + " " +
                               (process.command.empty() ? "(not visible)" : process.command));
  }
}

Frame MakeFrame(const Observed& observed, const TerminalSize& size, const TopStyle& style,
                const std::string& clock, bool compact) {
  const watch::Snapshot& snapshot = observed.snapshot;
  Frame frame{{}, size, style};
  std::string title = "tessera top  " + clock;
  if (snapshot.driver) title += "  driver " + snapshot.driver->version;
  title += "  slices " + std::to_string(snapshot.slices.size());
  frame.Painted(kBold, title);
  for (const watch::CardFacts& card : snapshot.cards) AddCard(frame, card, compact);
  frame.Plain("");
  AddSlices(frame, snapshot);
  AddTrouble(frame, observed);
  return frame;
}

}  // namespace

std::vector<std::string> TopFrame(const Observed& observed, const TerminalSize& size,
                                  const TopStyle& style, const std::string& clock, bool live) {
  const bool compact =
      size.rows != 0 && MakeFrame(observed, size, style, clock, false).lines.size() + 1 > size.rows;
  Frame frame = MakeFrame(observed, size, style, clock, compact);
  const std::string foot = "Memory in MiB. Cores and priority are not enforced yet.";
  const std::size_t room = size.rows == 0 ? frame.lines.size() + 1 : size.rows;
  if (frame.lines.size() + 1 > room && room >= 2) {
    const std::size_t hidden = frame.lines.size() - (room - 2);
    frame.lines.resize(room - 2);
    frame.Plain("... " + std::to_string(hidden) +
                " more lines: make the window taller, or see `tessera ps`");
  }
  if (frame.lines.size() < room) frame.Painted(kDim, (live ? "q or Ctrl-C leaves. " : "") + foot);
  if (frame.lines.size() > room) frame.lines.resize(room);
  return std::move(frame.lines);
}

}  // namespace tessera::cli
