#include "watch/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "base/files.h"
#include "node/child.h"
#include "node/mounts.h"
#include "node/sandbox.h"

namespace tessera::watch {
namespace {

constexpr std::int64_t kTrialNs = 5'000'000'000;

// Runs `work` in a child, stdout and stderr in one pipe, killed after kTrialNs.
Result<node::ChildEnd> InChild(const std::function<void()>& work) {
  node::ChildPlan plan;
  plan.what = "trial";
  plan.wait_ns = kTrialNs;
  plan.speaks = node::ChildSpeaks::kByStdoutAndStderr;
  return node::RunChild(plan, [&work](int) {
    work();
    return 1;
  });
}

void Tell(const std::string& text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(1);
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Status TryNamespaces() {
  std::string folder = "/tmp/tessera-trial-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return FailErrno("/tmp", errno);
  const Result<node::ChildEnd> trial = InChild([&folder] {
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
  if (trial->exit_code == 0 && trial->output.empty()) return {};
  return Fail(Code::kUnavailable,
              trial->output.empty() ? "the trial did not end" : FirstLine(trial->output));
}

Status TryPreload(const std::string& library) {
  const Result<node::ChildEnd> trial = InChild([&library] {
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
