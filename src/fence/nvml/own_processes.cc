#include "nvml/own_processes.h"

#include "contract/atomics.h"
#include "slice/slice.h"

namespace tessera::fence::nvml {

OwnProcesses::OwnProcesses(int card) : list_(TheSlice().ledger.SlotsInUse() + 1) {
  constexpr std::uint64_t kSweepEveryNs = 100'000'000;
  SweepSlice(kSweepEveryNs);
  const contract::LedgerView& ledger = TheSlice().ledger;
  const std::uint64_t name_space = os::PidNamespace();
  for (std::uint32_t i = 0; i < ledger.SlotsInUse() && count_ < list_.size(); ++i) {
    const contract::LedgerSlot& slot = ledger.Slot(i);
    const std::uint64_t owner = contract::Load(slot.owner);
    if (contract::OwnerState(owner) != contract::SlotState::kLive) continue;
    if (contract::Load(slot.pid_namespace) != name_space) continue;
    list_[count_++] = {contract::OwnerPid(owner), contract::Load(slot.host_pid),
                       contract::SlotBytes(slot, static_cast<std::uint32_t>(card))};
  }
}

const OwnProcess* OwnProcesses::Find(std::uint32_t pid) const {
  for (std::size_t i = 0; i < count_; ++i) {
    const OwnProcess& process = list_[i];
    if (process.host_pid != 0 ? process.host_pid == pid : process.pid == pid) return &process;
  }
  return nullptr;
}

}  // namespace tessera::fence::nvml
