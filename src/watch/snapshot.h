// One look at the machine: promises, ledgers, processes and the driver's figures, side by side.
//
// Units: bytes. Thread safety: plain values; TakeSnapshot from one thread.
// Invariants:
//   1. A process is in a slice by what the kernel says (its mount namespace, its ancestors, the
//   ledger that it has mapped), never by
//      what a ledger says.
//   2. A process of a user other than the slice's owner is in no slice of that owner, unless that
//   is root: slice.json is the owner's text.
//   3. Whatever cannot be read becomes an Error in its place; the rest is still there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/nvml.h"
#include "node/slice_files.h"
#include "node/store.h"
#include "watch/processes.h"

namespace tessera::watch {

enum class Belongs { kMountNamespace, kDescendant, kMapsLedger, kSeesPolicy, kUserNamespace };

struct SliceProcess {
  ProcessEntry process;
  std::string command_line;
  Belongs by = Belongs::kMountNamespace;
  std::optional<Mapped> mapped;        // none: may not be seen
  std::optional<bool> policy_is_ours;  // none: may not be seen, or fenced by environment
  std::optional<std::uint32_t> slot;   // its slot in the ledger
  std::vector<std::uint64_t> held;  // by card of the slice, from that slot: the greater of what it
                                    // said before and after the driver was asked
  std::vector<std::optional<std::uint64_t>>
      driver;                    // by card of the slice; none: the driver does not list it
  std::vector<int> other_cards;  // cards outside the slice where the driver lists it
};

// The remark of a slice whose ledger this user may not read.
inline constexpr char kHiddenLedger[] =
    "ledger: of another user, may not be read: what it holds is not known";

struct SliceFacts {
  node::SliceRecord record;
  Result<node::PolicyView> policy = Fail(Code::kNotFound, "not read");
  Result<node::LedgerView> ledger = Fail(Code::kNotFound, "not read");
  std::vector<SliceProcess> processes;  // by pid
  std::vector<std::string> remarks;  // what is odd, for people; the ledger's own remarks included
};

struct ForeignProcess {
  int card = 0;
  pid_t pid = 0;
  std::string command;  // empty: not visible from here (another pid namespace)
  std::optional<std::uint64_t> bytes;
};

struct CardFacts {
  int index = 0;
  Result<driver::Card> card = Fail(Code::kNotFound, "not read");
  Result<driver::CardUsage> usage = Fail(Code::kNotFound, "not read");
  std::uint64_t promised_bytes = 0;  // over live slices
  std::uint64_t held_bytes = 0;      // over their ledgers
  std::uint32_t promised_cores = 0;
  std::uint32_t slices = 0;
};

struct Snapshot {
  std::int64_t taken_s = 0;  // since 1970
  std::string state_path;    // empty: nothing was ever promised here
  std::string state_note;
  std::optional<Error> state_error;  // the state directory as a whole cannot be read
  Result<driver::DriverInfo> driver = Fail(Code::kUnavailable, "not asked");
  std::vector<CardFacts> cards;
  std::vector<SliceFacts> slices;  // live ones, in order of creation
  std::vector<node::Broken> broken;
  std::vector<ForeignProcess> foreign;
};

// Where a Snapshot comes from. `nvml` is an error where there is no driver.
struct Sources {
  Result<driver::Nvml*> nvml = Fail(Code::kUnavailable, "no driver");
  Processes* processes = nullptr;
  base::Clock* clock = nullptr;
};

// `state`: as the --state option, empty = the usual place.
Snapshot TakeSnapshot(const std::string& state, const Sources& sources);

// The same from an inventory that was read already: what tests use.
Snapshot MakeSnapshot(const node::Inventory& inventory, const Sources& sources);

}  // namespace tessera::watch
