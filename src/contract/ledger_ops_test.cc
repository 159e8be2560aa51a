#include "contract/ledger_ops.h"

#include <gtest/gtest.h>

#include <set>

#include "contract/testing/small_ledger.h"

namespace tessera::contract {
namespace {

using testing::SmallLedger;

constexpr auto kNobodyDead = [](const LedgerSlot&, std::uint64_t) { return false; };

std::uint64_t Process(std::uint64_t pid, std::uint64_t start = 100) {
  return MakeOwner(pid, start, SlotState::kLive);
}

ClaimInfo Image(std::uint64_t random, std::uint64_t pid_namespace = 1) {
  ClaimInfo info;
  info.image_random = random;
  info.pid_namespace = pid_namespace;
  return info;
}

TEST(OwnerWord, KeepsItsThreeParts) {
  const std::uint64_t owner = MakeOwner(4194303, (std::uint64_t{1} << 39) - 1, SlotState::kReaping);
  EXPECT_EQ(OwnerPid(owner), 4194303u);
  EXPECT_EQ(OwnerStart(owner), (std::uint64_t{1} << 39) - 1);
  EXPECT_EQ(OwnerState(owner), SlotState::kReaping);
  EXPECT_TRUE(SameProcess(owner, MakeOwner(4194303, OwnerStart(owner), SlotState::kLive)));
  EXPECT_FALSE(SameProcess(owner, MakeOwner(4194302, OwnerStart(owner), SlotState::kReaping)));
}

TEST(LedgerOps, ChargesToTheByteAndNotOneMore) {
  SmallLedger ledger(2);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead), 0);
  EXPECT_TRUE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 600, 1000));
  EXPECT_FALSE(Charge(ledger.card(), ledger.slot(0), Kind::kVmm, 401, 1000));
  EXPECT_TRUE(Charge(ledger.card(), ledger.slot(0), Kind::kVmm, 400, 1000));
  EXPECT_EQ(ledger.total(), 1000u);
  EXPECT_EQ(SlotBytes(ledger.view().Slot(0), 0), 1000u);
  EXPECT_EQ(WordBytes(ledger.slot(0).held[4]), 400u);
  EXPECT_TRUE(IsValid(ledger.view()));
  Release(ledger.card(), ledger.slot(0), Kind::kLinear, 600);
  Release(ledger.card(), ledger.slot(0), Kind::kVmm, 400);
  EXPECT_EQ(ledger.total(), 0u);
  EXPECT_EQ(ledger.card().peak_bytes, 1000u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, HugeRequestsDoNotWrapAround) {
  SmallLedger ledger(1);
  Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead);
  ASSERT_TRUE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 10, 100));
  for (const std::uint64_t huge : {UINT64_MAX, UINT64_MAX - 9, kMaxBytes, kMaxBytes + 1}) {
    EXPECT_FALSE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, huge, 100));
    EXPECT_FALSE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, huge, UINT64_MAX));
  }
  EXPECT_EQ(ledger.total(), 10u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, VersionWrapsWithoutTouchingBytes) {
  SmallLedger ledger(1);
  Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead);
  ASSERT_TRUE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 3, 100));
  for (int i = 0; i < 70000; ++i) {
    ASSERT_TRUE(Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 5, 100));
    Release(ledger.card(), ledger.slot(0), Kind::kLinear, 5);
  }
  EXPECT_EQ(ledger.total(), 3u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, SweepFreesTheDeadOnly) {
  SmallLedger ledger(3);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead), 0);
  ASSERT_EQ(Claim(ledger.view(), Process(8), Image(2), 0, kNobodyDead), 1);
  Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 30, 100);
  Charge(ledger.card(), ledger.slot(1), Kind::kPool, 40, 100);
  const auto seven_died = [](const LedgerSlot&, std::uint64_t o) { return OwnerPid(o) == 7; };
  EXPECT_EQ(Sweep(ledger.view(), Process(9), 5, seven_died), 1u);
  EXPECT_EQ(ledger.total(), 40u);
  EXPECT_EQ(ledger.view().Slot(0).owner, 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
  EXPECT_EQ(ledger.view().header().last_sweep_ns, 5u);
}

TEST(LedgerOps, DeathInsideAChargeIsRecounted) {
  SmallLedger ledger(2);
  Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead);
  Claim(ledger.view(), Process(8), Image(2), 0, kNobodyDead);
  Charge(ledger.card(), ledger.slot(1), Kind::kLinear, 40, 100);
  ledger.slot(0).held[0] += 1;             // step 1 of a charge of 30
  ledger.card().total += 30ull << 16 | 1;  // step 2, then killed
  const auto seven_died = [](const LedgerSlot&, std::uint64_t o) { return OwnerPid(o) == 7; };
  Sweep(ledger.view(), Process(8), 0, seven_died);
  EXPECT_EQ(ledger.total(), 40u);
  EXPECT_EQ(ledger.card().recount_wanted, 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, RecountWaitsForAChargeUnderWay) {
  SmallLedger ledger(2);
  Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead);
  ledger.card().recount_wanted = 1;
  ledger.card().total = 50ull << 16;
  ledger.slot(0).held[2] += 1;
  EXPECT_FALSE(Recount(ledger.view(), 0));
  EXPECT_EQ(ledger.total(), 50u);
  ledger.slot(0).held[2] -= 1;
  EXPECT_TRUE(Recount(ledger.view(), 0));
  EXPECT_EQ(ledger.total(), 0u);
}

TEST(LedgerOps, AnExecTakesOverItsOwnOldSlot) {
  SmallLedger ledger(4);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead), 0);
  Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 30, 100);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(2), 0, kNobodyDead), 0);
  EXPECT_EQ(ledger.total(), 0u);
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, ASecondFenceInOneProgramGetsItsOwnSlot) {
  SmallLedger ledger(4);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead), 0);
  Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 30, 100);
  ASSERT_EQ(Claim(ledger.view(), Process(7), Image(1), 0, kNobodyDead), 1);
  EXPECT_EQ(ledger.total(), 30u);
}

TEST(LedgerOps, APidUsedAgainFreesTheOldSlotButNotThatOfAnotherNamespace) {
  SmallLedger ledger(4);
  ASSERT_EQ(Claim(ledger.view(), Process(7, 100), Image(1, 1), 0, kNobodyDead), 0);
  ASSERT_EQ(Claim(ledger.view(), Process(7, 200), Image(2, 2), 0, kNobodyDead), 1);
  Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 30, 100);
  Charge(ledger.card(), ledger.slot(1), Kind::kLinear, 40, 100);
  ASSERT_EQ(Claim(ledger.view(), Process(7, 300), Image(3, 1), 0, kNobodyDead), 0);
  EXPECT_EQ(ledger.total(), 40u);
}

TEST(LedgerOps, NoFreeSlotIsCountedAndDeadOnesAreFoundFirst) {
  SmallLedger ledger(2);
  ASSERT_EQ(Claim(ledger.view(), Process(1), Image(1), 0, kNobodyDead), 0);
  ASSERT_EQ(Claim(ledger.view(), Process(2), Image(2), 0, kNobodyDead), 1);
  EXPECT_EQ(Claim(ledger.view(), Process(3), Image(3), 0, kNobodyDead), -1);
  EXPECT_EQ(ledger.view().header().slots_refused, 1u);
  const auto two_died = [](const LedgerSlot&, std::uint64_t o) { return OwnerPid(o) == 2; };
  EXPECT_EQ(Claim(ledger.view(), Process(3), Image(3), 0, two_died), 1);
}

TEST(LedgerOps, AReaperGivesALiveSlotBack) {
  SmallLedger ledger(1);
  Claim(ledger.view(), Process(7), Image(2), 0, kNobodyDead);
  Charge(ledger.card(), ledger.slot(0), Kind::kLinear, 30, 100);
  // The judgement "dead" was about an earlier image of the same process; the second look sees the
  // new one.
  EXPECT_FALSE(Reap(ledger.view(), 0, Process(7), Process(9), kNobodyDead));
  EXPECT_EQ(ledger.view().Slot(0).owner, Process(7));
  EXPECT_TRUE(IsValid(ledger.view()));
}

TEST(LedgerOps, RecountWishesDiffer) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t pid = 1; pid < 200; ++pid) {
    for (std::uint64_t slot = 0; slot < 50; ++slot) {
      const std::uint64_t wish = detail::RecountWish(Process(pid), slot);
      EXPECT_NE(wish, 0u);
      seen.insert(wish);
    }
  }
  EXPECT_EQ(seen.size(), 199u * 50u);
}

TEST(LedgerOps, SweepIsDueAfterTheIntervalAndWhenSomebodyWroteTheFuture) {
  SmallLedger ledger(1);
  Store(ledger.view().header().last_sweep_ns, std::uint64_t{1000});
  EXPECT_FALSE(SweepIsDue(ledger.view(), 1050, 100));
  EXPECT_TRUE(SweepIsDue(ledger.view(), 1100, 100));
  EXPECT_TRUE(SweepIsDue(ledger.view(), 900, 100));
}

}  // namespace
}  // namespace tessera::contract
