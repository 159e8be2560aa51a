#include "cli/top.h"

#include <signal.h>

#include <boost/json.hpp>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <ostream>

#include "cli/complain.h"
#include "cli/live_screen.h"
#include "cli/look.h"
#include "cli/snapshot_json.h"
#include "cli/text.h"
#include "cli/top_view.h"

namespace tessera::cli {
namespace {

constexpr std::uint32_t kMostSeconds = 3600;

Result<std::uint32_t> WholeNumber(const std::string& field, const std::string& text,
                                  std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > most) {
    return Fail(Code::kInvalidArgument, field + ": '" + base::Shown(text) +
                                            "' is not legal: whole numbers from 1 to " +
                                            Thousands(most));
  }
  return value;
}

std::string ClockText(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm local{};
  localtime_r(&time, &local);
  char text[16];
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

TopStyle StyleOfTerminal(bool terminal) {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  TopStyle style;
  style.color = terminal && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
                std::string_view(term) != "dumb";
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      locale = value;
      break;
    }
  }
  style.utf8 =
      locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return style;
}

class Top : public Command {
 public:
  void Declare(Options& options) override {
    options.Text("-n,--iterations", iterations_, "N",
                 "so many frames, then end; without end by default");
    options.Text("--interval", interval_, "SECONDS", "time between frames, 2 by default");
  }

  int Run(const Context& context) override {
    std::uint32_t frames = 0;  // 0 = without end
    std::uint32_t seconds = 2;
    if (!iterations_.empty()) {
      const Result<std::uint32_t> n = WholeNumber("--iterations", iterations_, 1'000'000);
      if (!n) return Complain(context, n.error());
      frames = *n;
    }
    if (!interval_.empty()) {
      const Result<std::uint32_t> n = WholeNumber("--interval", interval_, kMostSeconds);
      if (!n) return Complain(context, n.error());
      seconds = *n;
    }
    if (context.output == Output::kJson || !StdoutTerminal())
      return Plain(context, frames, seconds);
    return Live(context, frames, seconds);
  }

 private:
  static int Complain(const Context& context, const Error& error) {
    return cli::Complain(context.err, "tessera top", error.message, kUsage);
  }

  // One look a frame; what was found in the frame before as well is shown.
  Observed Next(const std::string& state) {
    Observed observed;
    observed.snapshot = look_.Take(state);
    observed.findings = confirmer_.Confirm(watch::Judge(observed.snapshot));
    return observed;
  }

  int Plain(const Context& context, std::uint32_t frames, std::uint32_t seconds) {
    const TerminalSize size{kTextWidth, 0};
    for (std::uint32_t i = 0; frames == 0 || i < frames; ++i) {
      if (i > 0) base::RealClock().SleepNs(std::int64_t{seconds} * 1'000'000'000);
      const Observed observed = Next(context.state_dir);
      if (context.output == Output::kJson) {
        context.out << Compact(ObservedJson(observed, "tessera.top/1"));
      } else {
        for (const std::string& line : TopFrame(observed, size, StyleOfTerminal(false),
                                                ClockText(observed.snapshot.taken_s), false)) {
          context.out << line << "\n";
        }
        context.out << "\n";
      }
      context.out.flush();
      if (!context.out) return kFailed;  // nobody reads any more
    }
    return kOk;
  }

  int Live(const Context& context, std::uint32_t frames, std::uint32_t seconds) {
    int signal_number = 0;
    {
      LiveScreen screen;
      const TopStyle style = StyleOfTerminal(true);
      Observed observed = Next(context.state_dir);
      for (std::uint32_t i = 1;;) {
        const TerminalSize size = StdoutTerminal().value_or(TerminalSize{});
        screen.Draw(TopFrame(observed, size, style, ClockText(observed.snapshot.taken_s), true));
        const LiveScreen::Woken woken = screen.Wait(std::chrono::seconds(seconds));
        if (woken == LiveScreen::Woken::kLeave) break;
        if (woken == LiveScreen::Woken::kResize) continue;
        if (frames != 0 && i >= frames) break;
        ++i;
        observed = Next(context.state_dir);
      }
      signal_number = LiveScreen::EndedBy();
    }
    // The shell shall see what ended it; q and the last frame are no signal.
    if (signal_number == SIGTERM || signal_number == SIGHUP || signal_number == SIGQUIT) {
      raise(signal_number);
    }
    return kOk;
  }

  std::string iterations_, interval_;
  Look look_;
  watch::Confirmer confirmer_;
};

}  // namespace

std::unique_ptr<Command> MakeTop() { return std::make_unique<Top>(); }

}  // namespace tessera::cli
