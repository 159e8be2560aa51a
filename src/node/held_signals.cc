#include "node/held_signals.h"

namespace tessera::node {
namespace {

constexpr int kAskToEnd[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

HeldSignals::HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (int number : kAskToEnd) sigaddset(&held, number);
  sigprocmask(SIG_BLOCK, &held, &before_);
}

bool HeldSignals::Waiting() const {
  sigset_t waiting;
  sigemptyset(&waiting);
  if (sigpending(&waiting) != 0) return false;
  for (int number : kAskToEnd) {
    // Blocked by whoever started us: theirs to keep waiting, in the program too.
    if (sigismember(&waiting, number) == 1 && sigismember(&before_, number) == 0) return true;
  }
  return false;
}

void HeldSignals::Release() {
  if (held_) sigprocmask(SIG_SETMASK, &before_, nullptr);
  held_ = false;
}

}  // namespace tessera::node
