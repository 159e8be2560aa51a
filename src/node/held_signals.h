// Signals that ask to end, kept waiting while something is half done: a Ctrl-C between the promise
// and the program's start gives the promise back first.
//
// Thread safety: processes of one thread. SIGKILL comes through: what it leaves, the next tessera
// removes.
#pragma once

#include <signal.h>

namespace tessera::node {

class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { Release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // One is waiting that this process does not ignore.
  bool Waiting() const;

  // The mask as it was before. What waits is delivered now: by default the process ends here.
  void Release();

 private:
  sigset_t before_{};
  bool held_ = true;
};

}  // namespace tessera::node
