#include "kube/access/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"

namespace tessera::kube {
namespace {

constexpr int kLookEveryMs = 20;  // how late an end, a stop or a time-out may be noticed

struct Pipe {
  base::Fd read, write;
};

Result<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return FailErrno("pipe", errno);
  return Pipe{base::Fd(fds[0]), base::Fd(fds[1])};
}

std::vector<std::string> Environment(const Command& command) {
  std::vector<std::string> lines;
  for (char** line = environ; *line; ++line) {
    const std::string_view text = *line;
    const bool replaced =
        std::any_of(command.environment.begin(), command.environment.end(), [&](const auto& pair) {
          return text.size() > pair.first.size() && text.starts_with(pair.first) &&
                 text[pair.first.size()] == '=';
        });
    if (!replaced) lines.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& lines) {
  std::vector<char*> pointers;
  for (std::string& line : lines) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<pid_t> Spawn(const Command& command, const Pipe& out, const Pipe& err) {
  std::vector<std::string> words = command.words, environment = Environment(command);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, &attributes,
                                 Pointers(words).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return Fail(Code::kUnavailable, std::string("cannot start: ") + std::strerror(error));
  return pid;
}

// Takes what is there; false when the stream has ended.
bool Drain(int fd, std::string& into) {
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got > 0) {
      into.append(buffer.data(), static_cast<std::size_t>(got));
      if (into.size() > (64u << 20)) return false;
    } else {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (static_cast<std::size_t>(got) < buffer.size()) return true;
  }
}

// The program and everything that it started.
void Kill(pid_t pid) {
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<CommandOutput> RunCommand(const Command& command, std::stop_token stop) {
  Result<Pipe> out = MakePipe();
  if (!out) return Fail(out.error());
  Result<Pipe> err = MakePipe();
  if (!err) return Fail(err.error());
  const Result<pid_t> pid = Spawn(command, *out, *err);
  if (!pid) return Fail(pid.error());
  out->write = base::Fd();
  err->write = base::Fd();
  fcntl(out->read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err->read.get(), F_SETFL, O_NONBLOCK);

  const std::int64_t deadline = base::RealClock().NowNs() + command.timeout_ns;
  CommandOutput output;
  std::array<pollfd, 2> streams = {pollfd{out->read.get(), POLLIN, 0},
                                   pollfd{err->read.get(), POLLIN, 0}};
  for (;;) {
    poll(streams.data(), streams.size(), kLookEveryMs);
    // Its end is looked for before its words are taken, so that none is missed; a grandchild that
    // keeps the pipes open is not waited for.
    int status = 0;
    const pid_t ended = waitpid(*pid, &status, WNOHANG);
    if (streams[0].fd >= 0 && !Drain(streams[0].fd, output.out)) streams[0].fd = -1;
    if (streams[1].fd >= 0 && !Drain(streams[1].fd, output.err)) streams[1].fd = -1;
    if (ended == *pid) {
      output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (output.out.size() > command.max_output) {
        return Fail(Code::kResourceExhausted, "printed too much");
      }
      return output;
    }
    if (streams[0].fd < 0 && streams[1].fd < 0) base::RealClock().SleepNs(1'000'000);
    if (stop.stop_requested()) {
      Kill(*pid);
      return Fail(Code::kCancelled, "given up");
    }
    if (output.out.size() > command.max_output || output.err.size() > command.max_output) {
      Kill(*pid);
      return Fail(Code::kResourceExhausted, "printed too much");
    }
    if (base::RealClock().NowNs() > deadline) {
      Kill(*pid);
      return Fail(Code::kDeadlineExceeded, "did not answer in time and was killed");
    }
  }
}

}  // namespace tessera::kube
