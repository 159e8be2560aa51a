// Child processes and node files for tests of shared state.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "sim/state/node_state.h"

namespace tessera::sim::testing {

// A node in a file of its own, used by this process (and by its children) until it goes out of
// scope.
class TestNode {
 public:
  explicit TestNode(int cards = 1);
  explicit TestNode(const NodeDescription& description);
  ~TestNode();
  TestNode(const TestNode&) = delete;
  TestNode& operator=(const TestNode&) = delete;

  NodeState* operator->() const { return node_; }
  NodeState& operator*() const { return *node_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  NodeState* node_ = nullptr;
};

// Runs `body` in a child that never returns from it; the child ends with status 0, or 1 if `body`
// says false.
pid_t Start(const std::function<bool()>& body);
// Waits for the child; true when it ended with status 0.
bool Join(pid_t child);
void Kill(pid_t child);          // SIGKILL and wait
void KillToZombie(pid_t child);  // SIGKILL, dead but not waited for

}  // namespace tessera::sim::testing
