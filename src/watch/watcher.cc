#include "watch/watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <tuple>

#include "base/fd.h"
#include "base/log.h"
#include "driver/second_wall.h"
#include "node/child.h"
#include "node/liveness.h"
#include "node/slice_folder.h"

namespace tessera::watch {
namespace {

constexpr int kStartWaitMs = 5000;
// Between a first finding and the look that confirms it: longer than a process is on its way to its
// first charge, and short, so that nobody escapes by handing what he holds from one process to the
// next.
constexpr std::chrono::milliseconds kLookAgain{1000};
constexpr int kSettleMs =
    200;  // between the command's end and the look whether anything of the slice is left
// Driver and ledger cannot be read at one instant: what stands in one look only is an allocation
// under way. On a machine whose processors are all taken a call lasts long, hence several looks.
constexpr int kMoreLooks = 3;
constexpr int kBetweenLooksMs = 150;

base::Fd OpenPidfd(pid_t pid) {
  return base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Cards of the slice by NVML's index, with the limit for each.
std::vector<driver::WallCard> WallCards(driver::Nvml& nvml, const node::SliceRecord& record) {
  std::vector<driver::WallCard> limits;
  const auto cards = nvml.Cards();
  if (!cards) return limits;
  for (const model::SliceCard& promise : record.slice.cards) {
    for (const Result<driver::Card>& card : *cards) {
      if (card && card->uuid == model::ToString(promise.uuid)) {
        limits.push_back({card->index, promise.memory_bytes});
      }
    }
  }
  return limits;
}

class Watcher {
 public:
  explicit Watcher(const WatcherPlan& plan)
      : plan_(plan), store_(plan.root), launcher_(OpenPidfd(plan.record.launcher.pid)) {}

  WatcherStarted RaiseWall() {
    WatcherStarted started;
    const driver::WallHost host = driver::HostForSecondWall();
    if (!host.root) {
      started.second_wall_reason = "only root may set the driver's memory limit";
      return started;
    }
    OpenDriver();
    const driver::SecondWallProbe probe = driver::ProbeSecondWall(nvml(), host);
    started.second_wall_reason = probe.reason;
    if (!probe.available) return started;
    const auto limits = WallCards(*nvml(), plan_.record);
    if (limits.size() != plan_.record.slice.cards.size()) {
      started.second_wall_reason = "the driver limits whole cards only, not MIG instances";
      return started;
    }
    const Result<driver::SecondWall> wall =
        driver::RaiseSecondWall(*nvml(), probe, plan_.record.slice.id, limits);
    if (!wall) {
      started.second_wall_reason = wall.error().message;
      return started;
    }
    wall_ = *wall;
    wall_cards_ = limits;
    if (Status entered = wall_->Enter(plan_.record.launcher.pid); !entered) {
      started.second_wall_reason = entered.error().message;
      wall_->Lower(nvml(), limits);
      wall_.reset();
      return started;
    }
    started.second_wall = true;
    return started;
  }

  void Run() {
    bool command_lives = launcher_.valid();
    while (Listed()) {
      const bool ended = !WaitForEnd(command_lives);
      if (ended && command_lives) {
        command_lives = false;
        LetGoOfStderr();
        Sleep(kSettleMs);
        continue;  // is anything left that is worth watching?
      }
      LookOnce();
    }
    if (wall_) wall_->Lower(nvml(), wall_cards_);
    store_.Reap();
  }

 private:
  driver::Nvml* nvml() { return nvml_ ? nvml_->get() : nullptr; }

  void OpenDriver() {
    if (!nvml_) nvml_ = driver::OpenNvml({});
  }

  static void Sleep(int ms) { poll(nullptr, 0, ms); }

  // False when the command ended before the next look is due.
  bool WaitForEnd(bool command_lives) {
    const auto wait = suspicion_ ? std::min(plan_.look_every, kLookAgain) : plan_.look_every;
    const int ms = static_cast<int>(wait.count());
    if (!command_lives) {
      Sleep(ms);
      return false;
    }
    pollfd ready{launcher_.get(), POLLIN, 0};
    return poll(&ready, 1, ms) <= 0;
  }

  // Whoever reads the command's stderr to its end must not wait for this process.
  static void LetGoOfStderr() {
    const base::Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (null.valid()) dup2(null.get(), STDERR_FILENO);
  }

  // The slice is over when it stands among the slices no more, or nothing of it lives. Slices that
  // cannot be read now (out of descriptors) are looked at again later, for an hour at looks of 10
  // s. Other slices are not looked at: whoever makes many of them delays no answer.
  bool Listed() {
    constexpr int kMostUnreadable = 360;
    const Result<base::Folder> slices = node::OpenSlices(store_.root().path);
    Result<node::SliceRecord> record =
        slices ? node::ReadSlice(*slices, plan_.record.slice.id) : Fail(slices.error());
    if (!record) {
      if (record.error().code == Code::kNotFound) return false;
      return ++unreadable_ < kMostUnreadable;
    }
    unreadable_ = 0;
    if (!node::LivenessProbe().Lives(*record)) return false;
    record->live = true;
    record_ = std::move(*record);
    return true;
  }

  void LookOnce() {
    if (!Listed() || !record_) return;
    OpenDriver();
    Sources sources;
    sources.processes = &RealProcesses();
    sources.clock = &base::RealClock();
    if (nvml_) {
      sources.nvml = nvml_->get();
    } else {
      sources.nvml = Fail(nvml_.error());
    }
    node::Inventory own;
    own.live.push_back(*record_);
    std::vector<Finding> findings = Judge(MakeSnapshot(own, sources));
    for (int again = 0; again < kMoreLooks && !findings.empty(); ++again) {
      Sleep(kBetweenLooksMs);
      findings = InBoth(findings, Judge(MakeSnapshot(own, sources)));
    }
    suspicion_ = confirmer_.Waits(findings);
    for (const Finding& finding : confirmer_.Confirm(findings)) {
      const auto key =
          std::make_tuple(finding.kind, finding.process.pid, finding.process.start_ticks);
      const bool fresh = said_.insert(key).second;
      if (!fresh && finding.action == contract::BypassAction::kReport) continue;
      const Result<std::string> answer = Answer(finding);
      if (answer && fresh) base::Say(*answer);
    }
  }

  WatcherPlan plan_;
  node::Store store_;
  base::Fd launcher_;
  std::optional<node::SliceRecord> record_;  // as it could be read last
  int unreadable_ = 0;                       // looks one after the other that found it unreadable
  Result<std::unique_ptr<driver::Nvml>> nvml_ = Fail(Code::kUnavailable, "not opened");
  std::optional<driver::SecondWall> wall_;
  std::vector<driver::WallCard> wall_cards_;
  Confirmer confirmer_;
  bool suspicion_ = false;  // something was found that the look before did not have
  std::set<std::tuple<Bypass, pid_t, std::uint64_t>> said_;
};

// What the watcher leaves of the process that it was forked from.
void BecomeSilent() {
  setsid();
  prctl(PR_SET_NAME, "tessera-watch", 0, 0, 0);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTOU, SIGTTIN}) {
    signal(number, SIG_IGN);
  }
  if (chdir("/") != 0) return;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  if (null > STDERR_FILENO) close(null);
}

void CloseAllBut(int keep) {
  if (keep > 3) close_range(3, static_cast<unsigned>(keep) - 1, 0);
  close_range(static_cast<unsigned>(keep < 3 ? 3 : keep + 1), ~0u, 0);
}

[[noreturn]] void WatcherMain(const WatcherPlan& plan, int answer) {
  BecomeSilent();
  CloseAllBut(answer);
  Watcher watcher(plan);
  const WatcherStarted started = watcher.RaiseWall();
  const std::string text = (started.second_wall ? "+" : "-") + started.second_wall_reason;
  // A driver that took longer than the launcher waits leaves nobody to tell; watching goes on.
  if (write(answer, text.data(), text.size()) < 0 && errno != EPIPE) _exit(1);
  close(answer);
  watcher.Run();
  _exit(0);
}

}  // namespace

Result<WatcherStarted> StartWatcher(const WatcherPlan& plan) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("watcher", errno);
  const base::Fd from(ends[0]);
  base::Fd to(ends[1]);
  const pid_t between = fork();
  if (between < 0) return FailErrno("watcher", errno);
  if (between == 0) {
    // The tenant's command shall not find a child that it never started: the watcher belongs to
    // init.
    const pid_t watcher = fork();
    if (watcher == 0) WatcherMain(plan, to.get());
    _exit(watcher < 0 ? 1 : 0);
  }
  to = base::Fd();
  const std::optional<node::Ended> ended =
      node::WaitForEnd(between, std::int64_t{kStartWaitMs} * 1'000'000);
  if (!ended || ended->exit_code != 0) return Fail(Code::kInternal, "watcher: cannot be started");
  pollfd ready{from.get(), POLLIN, 0};
  WatcherStarted started;
  started.second_wall_reason = "the driver does not answer";
  if (poll(&ready, 1, kStartWaitMs) <= 0) return started;
  char text[512];
  const ssize_t got = read(from.get(), text, sizeof text);
  if (got < 1) return Fail(Code::kInternal, "watcher: ended at once");
  started.second_wall = text[0] == '+';
  started.second_wall_reason.assign(text + 1, static_cast<std::size_t>(got) - 1);
  return started;
}

Result<std::string> Answer(const Finding& finding) {
  const int number = finding.action == contract::BypassAction::kKill    ? SIGKILL
                     : finding.action == contract::BypassAction::kPause ? SIGSTOP
                                                                        : 0;
  if (number == 0 || finding.process.pid == 0) return finding.text;
  const base::Fd process = OpenPidfd(finding.process.pid);
  // The descriptor holds the process; only then its start time says whether it is the one that was
  // found.
  if (!process.valid() || !base::Alive(finding.process)) {
    return Fail(Code::kNotFound, "pid " + std::to_string(finding.process.pid) + " has ended");
  }
  if (syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) != 0) {
    return FailErrno("pid " + std::to_string(finding.process.pid), errno);
  }
  return finding.text + (number == SIGKILL ? ": killed" : ": stopped");
}

Status MatchSecondWall(driver::Nvml& nvml, const node::SliceRecord& record) {
  const driver::WallHost host = driver::HostForSecondWall();
  if (host.cgroup2.empty()) return {};
  const driver::SecondWall wall = driver::SecondWall::Of(host.cgroup2, record.slice.id);
  if (access(wall.cgroup().c_str(), F_OK) != 0) return {};
  for (const driver::WallCard& limit : WallCards(nvml, record)) {
    if (Status set = wall.SetLimit(nvml, limit); !set) return FailIn("second wall", set.error());
  }
  return {};
}

}  // namespace tessera::watch
