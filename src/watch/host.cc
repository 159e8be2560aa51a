#include "watch/host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "base/fd.h"
#include "base/files.h"
#include "node/mounts.h"
#include "node/sandbox.h"

namespace tessera::watch {
namespace {

constexpr int kTrialMs = 5000;
constexpr std::size_t kMostAnswer = std::size_t{1} << 20;

struct Trial {
  std::string output;
  int exit_code = -1;  // -1: killed, or never ended
};

// Runs `work` in a child with stdout and stderr in one pipe; kills it after kTrialMs.
Result<Trial> InChild(const std::function<void()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("trial", errno);
  const base::Fd from(ends[0]);
  base::Fd to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return FailErrno("trial", errno);
  if (child == 0) {
    dup2(to.get(), STDOUT_FILENO);
    dup2(to.get(), STDERR_FILENO);
    work();
    _exit(1);
  }
  to = base::Fd();
  Trial trial;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTrialMs);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd ready{from.get(), POLLIN, 0};
    const int polled = left.count() <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left.count()));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) break;
    std::array<char, 4096> buffer;
    const ssize_t got = read(from.get(), buffer.data(), buffer.size());
    if (got <= 0 || trial.output.size() > kMostAnswer) break;
    trial.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  if (std::chrono::steady_clock::now() >= end) kill(child, SIGKILL);
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) trial.exit_code = WEXITSTATUS(status);
  return trial;
}

void Tell(const std::string& text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(1);
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Status TryNamespaces() {
  std::string folder = "/tmp/tessera-trial-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return FailErrno("/tmp", errno);
  const Result<Trial> trial = InChild([&folder] {
    if (Status entered = node::EnterNamespace(); !entered) {
      Tell(entered.error().message);
      _exit(1);
    }
    // As `tessera run` builds it: a tmpfs of the namespace, its folder below /etc, by binds where
    // an overlay is not to be had.
    const std::string below = folder + "/etc";
    Status laid = node::MountTmpfs(folder, "mode=0755,size=1m");
    if (laid) laid = base::MakeDirectory(below, 0755);
    if (laid && !node::OverlayBelow("/etc", below)) laid = node::RebuildFolder("/etc");
    if (!laid) {
      Tell(laid.error().message);
      _exit(1);
    }
    _exit(0);
  });
  rmdir(folder.c_str());
  if (!trial) return Fail(trial.error());
  if (trial->exit_code == 0) return {};
  return Fail(Code::kUnavailable,
              trial->output.empty() ? "the trial did not end" : FirstLine(trial->output));
}

Status TryPreload(const std::string& library) {
  const Result<Trial> trial = InChild([&library] {
    setenv("LD_PRELOAD", library.c_str(), 1);
    execlp("cat", "cat", "/proc/self/maps", nullptr);
    Tell("cat: cannot be started");
  });
  if (!trial) return Fail(trial.error());
  const std::string name = library.substr(library.rfind('/') + 1);
  if (trial->exit_code == 0 && trial->output.find(name) != std::string::npos) {
    const std::size_t complaint = trial->output.find("ERROR: ld.so");
    if (complaint == std::string::npos) return {};
    return Fail(Code::kUnavailable, FirstLine(trial->output.substr(complaint)));
  }
  const std::size_t complaint = trial->output.find("ERROR: ld.so");
  if (complaint != std::string::npos)
    return Fail(Code::kUnavailable, FirstLine(trial->output.substr(complaint)));
  return Fail(Code::kUnavailable, "it does not appear in a program that it was preloaded into");
}

StateDirectory LookAtState(const std::string& path) {
  StateDirectory state;
  state.path = path;
  struct stat info{};
  const std::string slices = path + "/slices";
  const std::string& asked = base::IsDirectory(slices) ? slices : path;
  if (stat(asked.c_str(), &info) != 0) return state;
  state.writable = access(asked.c_str(), W_OK | X_OK) == 0;
  state.by_all = (info.st_mode & S_IWOTH) != 0;
  return state;
}

}  // namespace tessera::watch
