// The process that stands beside a slice as long as it lives: raises the second wall where there is
// one, looks every kLookEvery at what the driver shows against what the ledger says, and answers a
// bypass as the slice's policy wants.
//
// `tessera run` starts it before it becomes the tenant's command; so nothing else has to run on the
// machine. It is a session of its own without terminal, stdin and stdout, keeps stderr only until
// the command ends, and ends with the slice. When somebody kills it, the fence stays; `tessera ps`
// and `tessera doctor` find the same on demand.
#pragma once

#include <chrono>
#include <string>

#include "node/store.h"
#include "watch/judge.h"

namespace tessera::watch {

// A finding is acted on when it stood in two looks, the second 1 s after the first: within 11 s of
// its beginning, the promise being 30 s.
inline constexpr std::chrono::seconds kLookEvery{10};

struct WatcherPlan {
  node::StateRoot root;
  node::SliceRecord record;  // of a slice that was committed; its launcher is the calling process
  std::chrono::milliseconds look_every = kLookEvery;
};

struct WatcherStarted {
  bool second_wall = false;
  std::string second_wall_reason;  // why not, in one clause
};

// Forks the watcher and answers when it has put the calling process behind the second wall, or
// knows that it cannot. Waits 5 s at most. The calling process keeps one thread and no trace of the
// driver's library; it has no new child afterwards.
Result<WatcherStarted> StartWatcher(const WatcherPlan& plan);

// Does what the policy of the finding's slice wants. kNotFound when the process ended; nothing is
// sent to a pid that became somebody else's. The text says what was done.
Result<std::string> Answer(const Finding& finding);

// After the promise of `record` changed: the same limit on its second wall, if it stands behind
// one.
Status MatchSecondWall(driver::Nvml& nvml, const node::SliceRecord& record);

}  // namespace tessera::watch
