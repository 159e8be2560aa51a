#include "node/ask_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

namespace tessera::node {
namespace {

constexpr std::size_t kMostText = 1 << 20;

// Everything that comes until the other side closes, or kUnavailable.
Result<std::string> ReadAnswer(int fd, std::int64_t wait_ns) {
  std::string text;
  std::int64_t deadline = base::RealClock().NowNs() + wait_ns;
  std::int64_t told_at = base::RealClock().NowNs() + base::kQuietNs;
  for (;;) {
    const std::int64_t now = base::RealClock().NowNs();
    if (now >= told_at) {
      base::Waiting("for the driver, at most " + std::to_string(wait_ns / 1'000'000'000) + " s");
      told_at = deadline;
    }
    const std::int64_t left_ms = (std::min(deadline, told_at) - now) / 1'000'000;
    pollfd ready{fd, POLLIN, 0};
    int polled = left_ms <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left_ms));
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) {
      if (base::RealClock().NowNs() + 1'000'000 < deadline) continue;
      return Fail(Code::kUnavailable,
                  "driver: no answer within " + std::to_string(wait_ns / 1'000'000'000) + " s");
    }
    char buffer[4096];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMostText) return Fail(Code::kDataLoss, "driver: answer too long");
  }
}

}  // namespace

Result<std::string> AskChild(const std::function<std::string()>& answer, std::int64_t wait_ns) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("driver", errno);
  base::Fd from(ends[0]), to(ends[1]);
  const pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) return FailErrno("driver", errno);
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    std::string text = answer();
    ssize_t put = write(to.get(), text.data(), text.size());
    _exit(put == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  to = base::Fd();
  Result<std::string> text = ReadAnswer(from.get(), wait_ns);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (text && text->empty())
    return Fail(Code::kUnavailable, "driver: the process that asked it died");
  return text;
}

}  // namespace tessera::node
