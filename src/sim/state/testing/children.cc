#include "sim/state/testing/children.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::sim::testing {

TestNode::TestNode(int cards) : TestNode(DefaultNode(cards)) {}

TestNode::TestNode(const NodeDescription& description) {
  char folder[] = "/tmp/sim-node-test.XXXXXX";
  path_ = std::string(mkdtemp(folder)) + "/node";
  if (CreateNode(path_.c_str(), description) == 0) node_ = MapNode(path_.c_str());
  UseNode(node_);
}

TestNode::~TestNode() {
  UseNode(nullptr);
  if (node_ != nullptr) munmap(node_, sizeof(NodeState));
  unlink(path_.c_str());
  rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

pid_t Start(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  if (child < 0) abort();  // never let -1 reach kill()
  return child;
}

bool Join(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void Kill(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void KillToZombie(pid_t child) {
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
}

}  // namespace tessera::sim::testing
