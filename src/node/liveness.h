// Whether anything of a slice still runs: a process of its owner, whatever slice.json says.
//
// One probe serves one look at all slices: /proc is scanned at most once. Thread safety: one
// thread. A slice of another user whose launcher is gone counts as live only by its ledger: the
// kernel hides the namespaces of other users' processes. Its owner and root see more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/mount_view.h"
#include "node/process_memory.h"
#include "node/store.h"

namespace tessera::node {

class LivenessProbe {
 public:
  bool Lives(const SliceRecord& record);

 private:
  void Scan();
  void ScanEnvironments();
  void LookForPolicy(std::uint64_t inode, pid_t pid);
  bool NamespaceLives(const SliceRecord& record) const;
  bool EnvironmentNames(const SliceRecord& record);
  bool PidNamespaceLives(const SliceRecord& record);
  bool SeesAllProcesses() const;
  bool LedgerLives(const SliceRecord& record);
  std::optional<bool> MapsFile(uid_t owner, pid_t pid, std::uint64_t inode);
  std::optional<std::set<std::uint64_t>> ReadLedgersMapped(pid_t pid);

  bool scanned_ = false, scanned_environments_ = false;
  // What stands at the policy's path in each mount namespace. The kernel gives inodes of namespaces
  // again, so the inode alone would keep a dead slice alive.
  std::map<std::uint64_t, SeenPolicy> policy_of_namespace_;
  std::vector<pid_t> pids_;
  ProcessMemory memory_;
  std::multimap<std::uint64_t, pid_t> pids_of_namespace_;
  std::set<std::pair<uid_t, std::string>> slice_variables_;  // of whom, TESSERA_SLICE_DIR
  std::map<pid_t, std::optional<std::set<std::uint64_t>>> ledgers_mapped_;  // inodes
  std::map<uid_t, std::int64_t> maps_took_ns_;  // for the slices of that user
  std::optional<std::string> boot_id_;
  std::uint64_t pid_namespace_ = 0;
};

}  // namespace tessera::node
