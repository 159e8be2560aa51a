// What this machine has promised, shared by all of its users, without a daemon.
//
// A state directory holds `lock` and `slices/ID/{policy,ledger,slice.json}`. A slice directory is
// made under a temporary name and renamed when it is whole, under the lock, after the promises of
// the live slices were added up: so the sum of promises never exceeds a card and a crash at any
// instruction leaves the old state or the new one. A slice lives as long as one of: its launcher,
// its command, a process in its mount namespace, a live slot of its ledger. What is dead is removed
// by whoever comes next and may remove it.
//
// Thread safety: none; one Store a thread. Processes are kept apart by the lock, waited for
// kLockWaitNs at most. Errors: kUnavailable when no state directory can be used; kUnimplemented for
// a newer layout; kDataLoss for a damaged slice.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"
#include "contract/slice_layout.h"
#include "model/card.h"
#include "placement/place.h"

namespace tessera::node {

inline constexpr std::int64_t kLockWaitNs = 5'000'000'000;

struct StateRoot {
  std::string path;
  bool shared = true;  // false: a folder of this user only; promises of others are not seen
  std::string note;    // one line for the user when it is not the usual place; empty otherwise
};

// `--state DIR`, else TESSERA_STATE, else /run/tessera, else a folder of this user. Made when
// missing.
Result<StateRoot> FindStateRoot(const std::string& flag);
// The same without making anything; for readers. kNotFound when nothing was ever promised here.
Result<StateRoot> FindStateRootToRead(const std::string& flag);

enum class Fencing {
  kNamespace,
  kEnvironment
};  // how the fence gets into the processes of a slice

struct SliceRecord {
  model::Slice slice;
  std::string directory;  // on the host
  std::string command;    // as typed, joined by blanks, at most 512 bytes
  uid_t owner = 0;
  std::int64_t created_s = 0;      // since 1970
  std::int64_t created_ns = 0;     // of the machine's monotonic clock: the order within one second
  base::ProcessIdentity launcher;  // becomes the command by exec: the same pid and start
  std::uint64_t mount_namespace = 0;  // inode; 0 before it was made and with kEnvironment
  // Inode of the user namespace that was made for this slice alone; 0: none was.
  std::uint64_t user_namespace = 0;
  std::uint64_t pid_namespace = 0;  // that `launcher.pid` counts in
  std::string boot_id;              // start times of another boot mean nothing
  Fencing fencing = Fencing::kNamespace;
  contract::BypassAction bypass = contract::BypassAction::kReport;
  // By card, the most that was ever promised: what a slice held rightfully before its limit was
  // lowered. Empty in records of older programs.
  std::vector<std::uint64_t> most_bytes;
  bool live = false;

  // The most that the slice may rightfully hold on card `index` of it.
  std::uint64_t MostBytes(std::size_t index) const;
};

struct Broken {
  std::string directory;
  Error error;
};

struct Inventory {
  std::vector<SliceRecord> live;  // in order of creation
  std::vector<SliceRecord> dead;  // not yet removed
  std::vector<Broken> broken;     // unreadable, newer, damaged: promises unknown
};

struct NewSlice {
  model::Request request;
  std::string command;  // for people: the words joined
  std::string program;  // its first word: the slice's name when none is given
  contract::BypassAction bypass = contract::BypassAction::kReport;
};

struct Change {  // of `tessera limit`; what is not set stays
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint32_t> cores;
  std::optional<model::Priority> priority;
};

struct Changed {
  SliceRecord before, after;
  std::vector<std::uint64_t>
      held_bytes;  // by card of the slice; empty when the ledger could not be read
};

class Store {
 public:
  explicit Store(StateRoot root, base::Clock& clock = base::RealClock());

  const StateRoot& root() const { return root_; }

  // Reads everything, writes nothing, takes no lock.
  Result<Inventory> Read() const;

  // The live slice with this id or name (node/slice_choice.h).
  Result<SliceRecord> Find(const std::string& name) const;

  // Removes what is dead and what crashed writers left. Errors of single slices are left for the
  // next one.
  void Reap();

  // Places without promising anything.
  Result<placement::Placement> TryPlace(const model::Node& node, const NewSlice& wanted) const;

  // Places, promises and makes the slice directory, owned by the calling process.
  // kResourceExhausted with asked, free and where when it does not fit; nothing is left behind on
  // any error.
  Result<SliceRecord> Commit(const model::Node& node, const NewSlice& wanted);

  // Writes down what became of a committed slice (mount namespace, fencing).
  Status Update(const SliceRecord& record);

  // Gives the promise back at once. Of an own slice only.
  Status Remove(const SliceRecord& record);

  // Checks room against the other promises, then one atomic store a value, one generation, one
  // wake.
  Result<Changed> SetLimits(const model::Node& node, const std::string& name, const Change& change);

 private:
  StateRoot root_;
  base::Clock* clock_;
};

}  // namespace tessera::node
