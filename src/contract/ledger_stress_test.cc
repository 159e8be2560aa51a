// Real threads and real processes on one ledger: the limit is never passed, nothing is lost, and a
// SIGKILL at a random moment leaves books that the next one puts right.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "contract/ledger_ops.h"

namespace tessera::contract {
namespace {

constexpr std::uint64_t kLimit = 1000;

// Pids are never reused within a test run of a few hundred processes: a pid that is gone is dead.
constexpr auto kDeadPid = [](const LedgerSlot&, std::uint64_t owner) {
  return kill(static_cast<pid_t>(OwnerPid(owner)), 0) != 0;
};

class SharedLedger {
 public:
  SharedLedger() {
    map_ = static_cast<LedgerFile*>(mmap(nullptr, sizeof(LedgerFile), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    InitLedger(*map_);
    OpenLedger(map_, sizeof *map_, &view_);
  }
  ~SharedLedger() { munmap(map_, sizeof *map_); }
  const LedgerView& view() const { return view_; }
  LedgerCard& card() const { return view_.Card(0); }

 private:
  LedgerFile* map_;
  LedgerView view_;
};

std::uint64_t Self() { return MakeOwner(getpid(), 1, SlotState::kLive); }

int ClaimHere(const LedgerView& view) {
  ClaimInfo info;
  info.pid_namespace = 1;
  info.image_random = 7;
  return Claim(view, Self(), info, 0, kDeadPid);
}

// Charges and gives back at random; true if the limit was ever passed by what it saw.
bool Churn(const SharedLedger& ledger, SlotCard& slot, unsigned seed, int rounds) {
  std::minstd_rand random(seed);
  std::vector<std::pair<Kind, std::uint64_t>> held;
  bool passed = false;
  for (int i = 0; i < rounds; ++i) {
    const Kind kind = static_cast<Kind>(random() % kKinds);
    const std::uint64_t bytes = random() % 400;
    if (Charge(ledger.card(), slot, kind, bytes, kLimit)) held.emplace_back(kind, bytes);
    passed = passed || WordBytes(Load(ledger.card().total)) > kLimit;
    if (!held.empty() && (random() % 2 == 0 || held.size() > 4)) {
      const std::size_t which = random() % held.size();
      Release(ledger.card(), slot, held[which].first, held[which].second);
      held.erase(held.begin() + which);
    }
  }
  for (const auto& [kind, bytes] : held) Release(ledger.card(), slot, kind, bytes);
  return passed;
}

TEST(LedgerStress, ThreadsOfOneProcess) {
  SharedLedger ledger;
  const int slot = ClaimHere(ledger.view());
  ASSERT_GE(slot, 0);
  std::vector<std::thread> threads;
  std::atomic<bool> passed = false;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      if (Churn(ledger, ledger.view().Slot(slot).cards[0], t + 1, 20000)) passed = true;
    });
  }
  std::thread sweeper([&] {
    for (int i = 0; i < 2000; ++i) {
      Store(ledger.card().recount_wanted, std::uint64_t{1});
      Sweep(ledger.view(), Self(), i, kDeadPid);
    }
  });
  for (std::thread& t : threads) t.join();
  sweeper.join();
  Recount(ledger.view(), 0);
  EXPECT_FALSE(passed);
  EXPECT_EQ(WordBytes(ledger.card().total), 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
  EXPECT_LE(ledger.card().peak_bytes, kLimit);
}

TEST(LedgerStress, EightProcesses) {
  SharedLedger ledger;
  std::vector<pid_t> children;
  for (unsigned p = 0; p < 8; ++p) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      const int slot = ClaimHere(ledger.view());
      _exit(slot < 0 || Churn(ledger, ledger.view().Slot(slot).cards[0], p + 1, 30000) ? 1 : 0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Sweep(ledger.view(), Self(), 0, kDeadPid);
  EXPECT_EQ(WordBytes(ledger.card().total), 0u);
  EXPECT_EQ(ledger.view().header().slots_refused, 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

// A process that has no time to tidy up: it holds what it happens to hold when the signal comes.
[[noreturn]] void ChurnUntilKilled(const SharedLedger& ledger, unsigned seed) {
  const int slot = ClaimHere(ledger.view());
  SlotCard& card = ledger.view().Slot(slot < 0 ? 0 : slot).cards[0];
  for (unsigned i = seed; slot >= 0 && i < seed + 2000; ++i) {
    Churn(ledger, card, i, 1000);
    if (i % 8 == 0) Sweep(ledger.view(), Self(), i, kDeadPid);
  }
  _exit(0);
}

TEST(LedgerStress, ProcessesKilledAtRandomMoments) {
  SharedLedger ledger;
  std::minstd_rand random(11);
  std::vector<pid_t> children;
  for (unsigned round = 0; round < 300; ++round) {
    while (children.size() < 6) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) ChurnUntilKilled(ledger, round * 10000 + 1);
      children.push_back(pid);
    }
    usleep(random() % 1500);
    const std::size_t which = random() % children.size();
    kill(children[which], SIGKILL);
    waitpid(children[which], nullptr, 0);
    children.erase(children.begin() + which);
    Sweep(ledger.view(), Self(), round, kDeadPid);
    EXPECT_LE(WordBytes(Load(ledger.card().total)), kLimit);
  }
  for (const pid_t pid : children) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  Sweep(ledger.view(), Self(), 0, kDeadPid);
  EXPECT_EQ(WordBytes(ledger.card().total), 0u);
  EXPECT_EQ(ledger.card().recount_wanted, 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

}  // namespace
}  // namespace tessera::contract
