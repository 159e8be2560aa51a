// What each promise is worth on this machine, in words: said by `explain` and `doctor` alike.
#pragma once

#include <string>
#include <vector>

#include "driver/second_wall.h"
#include "node/store.h"

namespace tessera::cli {

struct Guarantee {
  std::string what;   // "memory", "second wall", ...
  bool held = false;  // enforced here
  std::string worth;  // one sentence
};

// For slices fenced as `fencing` says, where the second wall is as `wall` says.
std::vector<Guarantee> Guarantees(node::Fencing fencing, const driver::SecondWallProbe& wall);

// What no user-space fence can prevent, one sentence each; found within 30 s by comparing the
// driver's figures with the ledgers.
std::vector<std::string> NotPrevented(node::Fencing fencing);

}  // namespace tessera::cli
