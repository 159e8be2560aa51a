#include "tests/integration/support/figures.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "contract/names.h"
#include "contract/slice_layout.h"
#include "sim/state/node_state.h"

namespace tessera::testing {
namespace {

using namespace tessera::contract;

[[noreturn]] void GiveUp(const char* what, const std::string& path) {
  std::fprintf(stderr, "figures: %s %s\n", what, path.c_str());
  std::exit(97);
}

void ReadAt(int fd, const std::string& path, std::uint64_t offset, void* to, std::size_t bytes) {
  if (::pread(fd, to, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes)) {
    GiveUp("cannot read", path);
  }
}

int OpenFile(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) GiveUp("cannot open", path);
  return fd;
}

std::uint64_t SumHeld(const LedgerSlot& slot) {
  std::uint64_t sum = 0;
  for (std::uint64_t word : slot.cards[0].held) sum += word >> kBytesShift;
  return sum;
}

}  // namespace

std::string SliceDirectory() {
  const char* named = std::getenv(kEnvSliceDir);
  return named != nullptr ? named : kSliceDir;
}

Figures ReadFigures() {
  static const std::string policy_path = SliceDirectory() + "/" + kPolicyFile;
  static const std::string ledger_path = SliceDirectory() + "/" + kLedgerFile;
  static const int policy = OpenFile(policy_path);
  static const int ledger = OpenFile(ledger_path);

  Figures figures{};
  PolicyCard card;
  ReadAt(policy, policy_path, sizeof(PolicyHeader), &card, sizeof card);
  figures.limit = card.limit_bytes;

  LedgerCard total;
  ReadAt(ledger, ledger_path, offsetof(LedgerFile, cards), &total, sizeof total);
  figures.ledger_total = total.total >> kBytesShift;

  for (std::uint32_t i = 0; i < kMaxSlots; ++i) {
    LedgerSlot slot;
    ReadAt(ledger, ledger_path, offsetof(LedgerFile, slots) + i * sizeof slot, &slot, sizeof slot);
    if (slot.owner == 0) {
      if (i > 600) break;  // slots are claimed from the front; tests use far fewer processes
      continue;
    }
    auto pid = static_cast<pid_t>((slot.owner >> kOwnerPidShift) & 0x3fffff);
    if (pid == ::getpid()) figures.ledger_own += SumHeld(slot);
    if (::kill(pid, 0) == 0) figures.ledger_live += SumHeld(slot);
  }

  sim::NodeState* node = sim::AttachNode();
  if (node == nullptr) GiveUp("no simulated node", sim::kDefaultNodePath);
  figures.driver_total = sim::UsedBytes(0);
  for (const sim::ProcessSlot& process : node->processes) {
    if ((process.owner.load() & 0x3fffff) == static_cast<std::uint64_t>(::getpid())) {
      figures.driver_own += sim::HeldBytes(process.cards[0]);
    }
  }
  return figures;
}

void PrintDifferences() {
  const int ledger = OpenFile(SliceDirectory() + "/" + kLedgerFile);
  sim::NodeState* node = sim::AttachNode();
  for (std::uint32_t i = 0; i < 600; ++i) {
    LedgerSlot slot;
    ReadAt(ledger, kLedgerFile, offsetof(LedgerFile, slots) + i * sizeof slot, &slot, sizeof slot);
    if (slot.owner == 0) continue;
    auto pid = (slot.owner >> kOwnerPidShift) & 0x3fffff;
    std::uint64_t by_driver = 0;
    for (const sim::ProcessSlot& process : node->processes) {
      if ((process.owner.load() & 0x3fffff) == pid) by_driver += sim::HeldBytes(process.cards[0]);
    }
    if (SumHeld(slot) == by_driver) continue;
    std::printf(
        "pid %llu: driver %llu MiB, ledger %llu MiB =", static_cast<unsigned long long>(pid),
        static_cast<unsigned long long>(by_driver >> 20),
        static_cast<unsigned long long>(SumHeld(slot) >> 20));
    for (std::uint64_t word : slot.cards[0].held) {
      std::printf(" %llu", static_cast<unsigned long long>(word >> (kBytesShift + 20)));
    }
    std::printf(" (linear managed pool graph vmm array imported context)\n");
  }
  ::close(ledger);
}

}  // namespace tessera::testing
