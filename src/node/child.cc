#include "node/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace tessera::node {
namespace {

constexpr int kAnswerFd = 3;
constexpr std::int64_t kDyingNs = 500'000'000;  // from SIGKILL to a process that can die at all
constexpr std::int64_t kMs = 1'000'000;

std::int64_t Now() { return base::RealClock().NowNs(); }

// Killed, and not dead when they were left.
std::vector<pid_t>& Left() {
  static std::vector<pid_t> left;
  return left;
}

void ReapLeft() {
  std::erase_if(Left(), [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
}

// In the child: nothing of the caller's stays open but `far`, which becomes kAnswerFd. A child that
// never dies must hold no pipe that somebody reads to its end, and no lock.
bool KeepOnly(int far) {
  const int null = open("/dev/null", O_RDWR);
  if (null < 0) return false;
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (stream != far && dup2(null, stream) < 0) return false;
  }
  if (far != kAnswerFd && dup2(far, kAnswerFd) < 0) return false;
  return close_range(kAnswerFd + 1, ~0u, 0) == 0;
}

// The status of a child that ended before `deadline`; none: it did not.
std::optional<int> WaitUntil(pid_t child, std::int64_t deadline) {
  const base::Fd handle(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) return status;
    if (got < 0 && errno != EINTR) return 0;  // reaped by a caller that ignores SIGCHLD
    const std::int64_t left_ms = (deadline - Now()) / kMs;
    if (left_ms <= 0) return std::nullopt;
    pollfd ended{handle.get(), POLLIN, 0};
    const int wait_ms =
        static_cast<int>(std::min<std::int64_t>(left_ms, handle.valid() ? 1000 : 1));
    poll(&ended, handle.valid() ? 1 : 0, wait_ms);
  }
}

std::optional<int> ExitCode(int status) {
  if (!WIFEXITED(status)) return std::nullopt;
  return WEXITSTATUS(status);
}

tl::unexpected<Error> NoAnswer(const ChildPlan& plan) {
  return Fail(Code::kDeadlineExceeded, plan.what + ": no answer within " +
                                           std::to_string(plan.wait_ns / 1'000'000'000) + " s");
}

// Everything that comes until the other side closes.
Result<std::string> ReadAnswer(int fd, const ChildPlan& plan, std::int64_t deadline) {
  std::string text;
  std::int64_t told_at = plan.tell_waiting ? Now() + base::kQuietNs : deadline;
  for (;;) {
    const std::int64_t now = Now();
    if (now >= deadline) return NoAnswer(plan);
    if (now >= told_at) {
      base::Waiting("for the " + plan.what + ", at most " +
                    std::to_string(plan.wait_ns / 1'000'000'000) + " s");
      told_at = deadline;
    }
    const std::int64_t left_ms = (std::min(deadline, told_at) - now + kMs - 1) / kMs;
    pollfd ready{fd, POLLIN, 0};
    const int polled = poll(&ready, 1, static_cast<int>(left_ms));
    if (polled == 0 || (polled < 0 && errno == EINTR)) continue;
    if (polled < 0) return FailErrno(plan.what, errno);
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > plan.most_bytes)
      return Fail(Code::kDataLoss, plan.what + ": answer too long");
  }
}

}  // namespace

Result<pid_t> ForkAlone(const std::string& what, int far, const std::function<int(int)>& work) {
  ReapLeft();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return FailErrno(what, errno);
  if (child > 0) return child;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || !KeepOnly(far)) _exit(1);
  _exit(work(kAnswerFd));
}

std::optional<int> Bury(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, WNOHANG) == child) return ExitCode(status);
  kill(child, SIGKILL);
  if (!WaitUntil(child, Now() + kDyingNs)) Left().push_back(child);
  return std::nullopt;
}

std::optional<Ended> WaitForEnd(pid_t child, std::int64_t wait_ns) {
  const std::optional<int> status = WaitUntil(child, Now() + wait_ns);
  if (!status) return std::nullopt;
  return Ended{ExitCode(*status)};
}

bool IsLeft(pid_t child) {
  ReapLeft();
  return std::ranges::find(Left(), child) != Left().end();
}

Result<ChildEnd> RunChild(const ChildPlan& plan, const std::function<int(int)>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno(plan.what, errno);
  const base::Fd from(ends[0]);
  base::Fd to(ends[1]);
  const std::int64_t deadline = Now() + plan.wait_ns;
  const Result<pid_t> child = ForkAlone(plan.what, to.get(), [&](int answer) {
    if (plan.speaks == ChildSpeaks::kByAnswer) return work(answer);
    if (dup2(answer, STDOUT_FILENO) < 0) return 1;
    if (plan.speaks == ChildSpeaks::kByStdoutAndStderr && dup2(answer, STDERR_FILENO) < 0) return 1;
    close(answer);
    return work(STDOUT_FILENO);
  });
  if (!child) return Fail(child.error());
  to = base::Fd();
  Result<std::string> text = ReadAnswer(from.get(), plan, deadline);
  const std::optional<int> status = text ? WaitUntil(*child, deadline) : std::nullopt;
  if (status) return ChildEnd{std::move(*text), ExitCode(*status)};
  Bury(*child);
  if (!text) return Fail(text.error());
  return NoAnswer(plan);
}

}  // namespace tessera::node
