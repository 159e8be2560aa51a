// The two files of a slice directory as the host sees them (docs/formats/slice-directory.md).
//
// `policy` is written here. `ledger` is written by tenants and believed by nobody: it is copied
// with pread(2), never mapped (a tenant may truncate it under us), every offset, count and stride
// is checked against what was copied, and only slots whose process lives are added up. Units:
// bytes. Thread safety: pure functions of files. A slice directory belongs to whoever made the
// slice: what reads or changes one of another user takes it as a base::Folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/folder.h"
#include "base/process.h"
#include "base/result.h"
#include "contract/names.h"
#include "contract/slice_layout.h"
#include "model/card.h"

namespace tessera::node {

struct PolicyText {  // what CreatePolicy writes
  model::Slice slice;
  std::vector<model::Card> cards;  // same order as slice.cards
  contract::BypassAction bypass = contract::BypassAction::kReport;
};

// With every block allocated: a tenant that maps it never meets SIGBUS. kResourceExhausted on a
// full disk, nothing left.
Status CreatePolicy(const std::string& path, const PolicyText& text, mode_t mode);

// An empty ledger, with every block allocated for the same reason (6 MiB).
Status CreateLedger(const std::string& path, mode_t mode);

// What the policy says for a slice that was promised `cores`: 0 means none promised, so nothing to
// hold it to.
std::uint32_t ComputePercent(std::uint32_t cores);

struct PolicyCardView {
  model::Uuid uuid;
  std::uint64_t limit_bytes = 0, ceiling_bytes = 0, physical_bytes = 0;
  std::uint32_t compute_percent = 0, priority = 0;
  bool gate_open = true;
};

struct PolicyView {
  std::string slice_id, slice_name;
  std::uint32_t flags = 0, core_policy = 0, bypass_action = 0;
  std::uint64_t generation = 0, heartbeat_ns = 0;
  std::vector<PolicyCardView> cards;
};

// kUnimplemented: a layout this program does not know; kDataLoss: not a policy, too short, counts
// out of range.
Result<PolicyView> ReadPolicy(const base::Folder& slice);
Result<PolicyView> ReadPolicy(const std::string& path);  // of the slice around this process
Result<PolicyView> PolicyFromBytes(const std::string& path,
                                   const std::string& bytes);  // `path` is for errors

// One atomic store for each value that differs, generation + 1, futex wake of all waiters on its
// low half.
struct PolicyCardChange {
  std::uint64_t limit_bytes = 0;
  std::uint32_t compute_percent = 0;
  std::uint32_t priority = 0;
};
Status ChangePolicy(const base::Folder& slice, const std::vector<PolicyCardChange>& cards);

struct LedgerSlotView {
  std::uint32_t index = 0;
  base::ProcessIdentity owner;  // in the pid namespace `pid_namespace`
  std::uint64_t pid_namespace = 0;
  std::uint64_t time_namespace = 0;  // whose clock owner.start_ticks was read by; 0 = not told
  pid_t pid_here = 0;  // the same process as this program counts; 0 = cannot be seen from here
  std::uint64_t stack_start = 0;
  std::uint32_t host_pid = 0;
  std::uint32_t hooks_active = 0;
  std::string build_id;  // printable part
  std::string command;   // as written by the tenant, control characters replaced
  bool live = false;
  std::vector<std::uint64_t> held;          // sum over kinds, by card of the slice
  std::vector<std::uint64_t> held_by_kind;  // kKinds words a card, card after card
};

struct LedgerCardView {
  std::uint64_t total_bytes = 0;  // the fence's own cache; may lag, may be forged
  std::uint64_t held_bytes = 0;   // sum over live slots
  std::uint64_t peak_bytes = 0, denied_count = 0, denied_bytes = 0;
  bool recount_wanted = false;
};

struct LedgerView {
  std::vector<LedgerCardView> cards;  // as many as asked for
  std::vector<LedgerSlotView> slots;  // claimed ones, dead ones included
  std::uint64_t slots_refused = 0;
  std::vector<std::string>
      remarks;  // what is wrong with the file, for people: "held more than the card"
};

// `card_count` cards of the slice, `card_bytes` their sizes (figures above are reported as remarks
// and cut). Errors as ReadPolicy. A process that has the same pid as the slot but lives in another
// pid namespace than this program is looked up by host_pid when the agent filled it, and counts as
// live otherwise.
Result<LedgerView> ReadLedger(const base::Folder& slice,
                              const std::vector<std::uint64_t>& card_bytes);
Result<LedgerView> LedgerFromBytes(
    const std::string& path, const std::string& bytes,
    const std::vector<std::uint64_t>& card_bytes);  // `path` is for errors

inline constexpr char kGuardedFolder[] = "root-only";

// The ledger of a slice. Slices of root keep it in a folder that only root may enter, since it has
// to be writable for every user inside: kPermissionDenied for others. `flags` as Folder::OpenFile.
Result<base::Fd> OpenLedger(const base::Folder& slice, int flags);

}  // namespace tessera::node
