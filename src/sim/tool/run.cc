#include "sim/tool/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/files.h"
#include "sim/nodes/node_description.h"
#include "sim/tool/driver_view.h"

namespace tessera::sim {
namespace {

// A node file that goes with its folder unless somebody named it.
struct NodeFile {
  std::string path;
  std::string folder;  // to remove; empty = keep
  int cards = 0;
};

void Remove(const NodeFile& node) {
  if (node.folder.empty()) return;
  unlink(node.path.c_str());
  rmdir(node.folder.c_str());
}

Result<int> CardsOf(const std::string& path) {
  NodeState* node = MapNode(path.c_str());
  if (node == nullptr) {
    if (errno == EPROTO)
      return Fail(Code::kDataLoss,
                  "--state " + path + ": not a node of this version of tessera-sim");
    return FailErrno("--state " + path, errno);
  }
  const int cards = static_cast<int>(node->card_count);
  munmap(node, sizeof(NodeState));
  return cards;
}

Result<NodeFile> MakeNode(const RunOptions& options) {
  NodeFile node;
  Result<NodeDescription> description = LoadNode(options.node);
  if (!description) return FailIn("--node", description.error());
  if (options.state.empty()) {
    // In memory where there is a place for that: pages of the node are written often.
    std::string folder =
        (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/tessera-sim-XXXXXX");
    if (mkdtemp(folder.data()) == nullptr) return FailErrno(folder, errno);
    node.folder = folder;
    node.path = folder + "/node";
  } else {
    char real[4096];
    node.path = options.state.front() == '/' || getcwd(real, sizeof real) == nullptr
                    ? options.state
                    : std::string(real) + "/" + options.state;
  }
  const int error = CreateNode(node.path.c_str(), *description);
  if (error != 0 && error != EEXIST) {
    Remove(node);
    return FailErrno((options.state.empty() ? "node file " : "--state ") + node.path, error);
  }
  Result<int> cards = CardsOf(node.path);
  if (!cards) {
    Remove(node);
    return Fail(cards.error());
  }
  node.cards = *cards;
  return node;
}

Result<std::string> LibraryFolder(const RunOptions& options) {
  std::string folder = options.libraries;
  if (folder.empty()) {
    Result<std::string> self = base::OwnExecutable();
    if (!self) return Fail(self.error());
    folder = self->substr(0, self->rfind('/')) + "/../lib";
  }
  char real[PATH_MAX];
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    if (access((folder + "/" + name).c_str(), R_OK) != 0)
      return FailErrno("driver library " + folder + "/" + name, errno);
  }
  return realpath(folder.c_str(), real) == nullptr ? folder : std::string(real);
}

// Tries the view in a child: a namespace half made can't be left again. Empty = it works.
std::string WhyNoView(DriverView view) {
  view.trial = true;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::strerror(errno);
  base::Fd from(ends[0]), to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return std::strerror(errno);
  if (child == 0) {
    const Status entered = EnterDriverView(view);
    const std::string said = entered ? "" : entered.error().message;
    const ssize_t put = write(ends[1], said.data(), said.size());
    _exit(put < 0 ? 1 : 0);
  }
  to = base::Fd();
  std::string why;
  char buffer[512];
  for (ssize_t got; (got = read(from.get(), buffer, sizeof buffer)) > 0;)
    why.append(buffer, static_cast<std::size_t>(got));
  int status = 0;
  waitpid(child, &status, 0);
  if (why.empty() && status != 0) why = "the trial ended with status " + std::to_string(status);
  return why;
}

int Exec(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "tessera-sim: %s: %s\n", command[0].c_str(), std::strerror(error));
  return error == ENOENT ? 127 : 126;  // as shells do
}

volatile sig_atomic_t running_child = 0;

void Forward(int signal) {
  if (running_child > 0) kill(static_cast<pid_t>(running_child), signal);
}

// Waits for the command and ends as it did. Signals of the terminal reach it by themselves.
int WaitFor(pid_t child, const NodeFile& node) {
  running_child = child;
  for (int signal_number : {SIGINT, SIGQUIT}) signal(signal_number, SIG_IGN);
  for (int signal_number : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH})
    signal(signal_number, Forward);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Remove(node);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

// The view is in force: nothing of this program needs to stay.
int StartInView(const RunOptions& options, const NodeFile& node) {
  Remove(node);  // the mount keeps it
  unsetenv(kEnvNodePath);
  return Exec(options.command);
}

int StartWithEnvironment(const RunOptions& options, const NodeFile& node,
                         const std::string& libraries) {
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string path =
      libraries + (before != nullptr && before[0] != 0 ? std::string(":") + before : "");
  sigset_t all, old;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &old);  // none is lost between fork and the handlers
  const pid_t child = fork();
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &old, nullptr);
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    setenv(kEnvNodePath, node.path.c_str(), 1);
    _exit(Exec(options.command));
  }
  if (child < 0) {
    std::fprintf(stderr, "tessera-sim: fork: %s\n", std::strerror(errno));
    Remove(node);
    return 1;
  }
  running_child = child;
  for (int signal_number : {SIGINT, SIGQUIT}) signal(signal_number, SIG_IGN);
  sigprocmask(SIG_SETMASK, &old, nullptr);
  return WaitFor(child, node);
}

}  // namespace

Result<int> Run(const RunOptions& options) {
  Result<std::string> libraries = LibraryFolder(options);
  if (!libraries) return Fail(libraries.error());
  Result<NodeFile> node = MakeNode(options);
  if (!node) return Fail(node.error());
  const DriverView view{*libraries, node->path, node->cards};
  std::string why = options.no_namespace ? "--no-namespace was given" : WhyNoView(view);
  if (why.empty()) {
    if (Status entered = EnterDriverView(view); !entered) {
      Remove(*node);
      return FailIn("namespace", entered.error());
    }
    return StartInView(options, *node);
  }
  std::fprintf(stderr,
               "tessera-sim: no mount namespace (%s): the driver is found by LD_LIBRARY_PATH and "
               "%s, not under env -i\n",
               why.c_str(), kEnvNodePath);
  return StartWithEnvironment(options, *node, *libraries);
}

}  // namespace tessera::sim
