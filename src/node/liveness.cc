#include "node/liveness.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>

#include "base/files.h"
#include "base/process.h"
#include "contract/names.h"
#include "node/slice_files.h"
#include "node/slice_record.h"

namespace tessera::node {
namespace {

// The value of one variable in the text of /proc/PID/environ.
std::string VariableOf(const std::string& environment, const std::string& name) {
  std::string start = name + "=";
  std::size_t at =
      environment.compare(0, start.size(), start) == 0 ? 0 : environment.find('\0' + start);
  if (at == std::string::npos) return "";
  if (environment[at] == '\0') ++at;
  return std::string(environment.c_str() + at + start.size());
}

}  // namespace

bool LivenessProbe::Lives(const SliceRecord& record) {
  if (!boot_id_) {
    boot_id_ = BootId();
    pid_namespace_ = base::NamespaceInode(getpid(), "pid");
  }
  if (record.boot_id != *boot_id_) return false;
  // Pids of another pid namespace mean nothing here: what was promised there stays promised while
  // that namespace lives.
  if (record.pid_namespace != pid_namespace_) return PidNamespaceLives(record.pid_namespace);
  if (base::Alive(record.launcher)) return true;
  if (!scanned_) Scan();
  if (NamespaceLives(record)) return true;
  if (slice_variables_.contains(record.directory)) return true;
  return LedgerLives(record);
}

bool LivenessProbe::NamespaceLives(const SliceRecord& record) const {
  if (record.mount_namespace == 0) return false;
  auto found = slice_of_namespace_.find(record.mount_namespace);
  if (found == slice_of_namespace_.end()) return false;
  return found->second.empty() || found->second == record.slice.id;
}

bool LivenessProbe::PidNamespaceLives(std::uint64_t inode) {
  // Only root in the machine's own pid namespace sees all processes; for anybody else, unseen is
  // not gone.
  constexpr std::uint64_t kInitialPidNamespace =
      0xEFFFFFFC;  // PROC_PID_INIT_INO of linux/proc_ns.h
  if (geteuid() != 0 || pid_namespace_ != kInitialPidNamespace) return true;
  if (!scanned_) Scan();
  return pid_namespaces_.contains(inode);
}

void LivenessProbe::Scan() {
  scanned_ = true;
  constexpr std::size_t kMostEnvironment = 4 << 20;
  Result<std::vector<std::string>> names = base::ListDirectory("/proc");
  if (!names) return;
  const std::uint64_t own_namespace = base::NamespaceInode(getpid(), "mnt");
  for (const std::string& name : *names) {
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    pid_t pid = std::atoi(name.c_str());
    if (pid == getpid()) continue;  // looks, and is of no slice: nested runs are refused
    std::uint64_t inode = base::NamespaceInode(pid, "mnt");
    if (inode != 0 && inode != own_namespace && !slice_of_namespace_.contains(inode)) {
      Result<PolicyView> policy =
          ReadPolicy("/proc/" + name + "/root" + contract::kSliceDir + "/" + contract::kPolicyFile);
      slice_of_namespace_[inode] = policy ? policy->slice_id : "";
    }
    pid_namespaces_.insert(base::NamespaceInode(pid, "pid"));
    Result<std::string> environment =
        base::ReadKernelFile("/proc/" + name + "/environ", kMostEnvironment);
    if (!environment) continue;
    if (std::string value = VariableOf(*environment, contract::kEnvSliceDir); !value.empty()) {
      slice_variables_.insert(value);
    }
  }
}

bool LivenessProbe::LedgerLives(const SliceRecord& record) const {
  std::vector<std::uint64_t> card_bytes(record.slice.cards.size(), model::kMaxMemory);
  Result<LedgerView> ledger = ReadLedger(LedgerPath(record.directory), card_bytes);
  if (!ledger) return false;
  for (const LedgerSlotView& slot : ledger->slots) {
    if (slot.live) return true;
  }
  return false;
}

}  // namespace tessera::node
