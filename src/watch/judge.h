// The rules that find a process that goes round its fence. Pure.
//
// Thread safety: Judge is a function; Confirmer belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "watch/snapshot.h"

namespace tessera::watch {

enum class Bypass {
  kUncharged,       // the driver shows more than the ledger, beyond the tolerance
  kNoFence,         // uses the driver and the fence is not in the process
  kOtherCard,       // the driver lists it on a card that is not in its slice
  kPolicyReplaced,  // another file stands where its policy should be
  kLedgerLost,      // the slice's ledger is no ledger any more
  kOverLimit,       // the driver shows more for the slice than it was ever promised
};

struct Finding {
  Bypass kind = Bypass::kUncharged;
  std::string slice_id, slice_name;
  base::ProcessIdentity process;  // pid 0: the slice as a whole
  std::string command;
  std::string text;  // one line for people, with pid, command and figures
  contract::BypassAction action = contract::BypassAction::kReport;  // what the slice's policy wants
};

// How far the driver's figure of a process may stand above its ledger: the greater of 64 MiB and a
// sixteenth of the figure. The fence charges whole allocations and measures contexts and modules
// when they are made; modules that the driver loads late, and its rounding, come on top (tens of
// MiB on real cards).
std::uint64_t Tolerance(std::uint64_t driver_bytes);

// The same for all processes of a slice together: the greater of 256 MiB and an eighth.
std::uint64_t SliceTolerance(std::uint64_t bytes);

std::vector<Finding> Judge(const Snapshot& snapshot);
std::vector<Finding> JudgeSlice(const SliceFacts& slice);

// The findings of `second` that stand in `first` as well: same kind, slice and process.
std::vector<Finding> InBoth(const std::vector<Finding>& first, const std::vector<Finding>& second);

// Holds a finding back until it stands in two looks one after the other: a process may have taken
// memory, or have been between exec and its first instruction, while the first look was taken.
class Confirmer {
 public:
  // True when some of `findings`, of a new look, would still have to stand in one more.
  bool Waits(const std::vector<Finding>& findings) const;
  // The findings of this look that stood in the one before it as well.
  std::vector<Finding> Confirm(const std::vector<Finding>& findings);

 private:
  std::vector<Finding> last_;
};

const char* ToString(Bypass kind);
const char* ToString(contract::BypassAction action);

}  // namespace tessera::watch
