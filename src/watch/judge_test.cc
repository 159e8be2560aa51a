#include "watch/judge.h"

#include <gtest/gtest.h>

#include "model/quantity.h"

namespace tessera::watch {
namespace {

using model::kMib;

// A slice "chat" with one card and one process that behaves.
SliceFacts WellBehaved() {
  SliceFacts slice;
  slice.record.slice.id = "chat-1";
  slice.record.slice.name = "chat";
  slice.record.slice.cards.push_back({{}, 8000 * kMib, 0});
  slice.ledger = node::LedgerView{};
  SliceProcess process;
  process.process.identity = {1234, 77};
  process.process.command = "python";
  process.mapped = Mapped{true, true, true};
  process.policy_is_ours = true;
  process.slot = 0;
  process.held = {2000 * kMib};
  process.driver = {2010 * kMib};
  slice.processes.push_back(process);
  return slice;
}

std::vector<Finding> JudgeOne(const SliceFacts& slice) {
  Snapshot snapshot;
  snapshot.slices.push_back(slice);
  return Judge(snapshot);
}

TEST(Judge, AcceptsWhatAgrees) { EXPECT_TRUE(JudgeOne(WellBehaved()).empty()); }

TEST(Judge, ToleratesTheStatedDifferenceAndNotMore) {
  EXPECT_EQ(Tolerance(0), 64 * kMib);
  EXPECT_EQ(Tolerance(16000 * kMib), 1000 * kMib);
  SliceFacts slice = WellBehaved();
  slice.processes[0].held = {0};
  slice.processes[0].driver = {64 * kMib};
  EXPECT_TRUE(JudgeOne(slice).empty());
  slice.processes[0].driver = {64 * kMib + 1};
  ASSERT_EQ(JudgeOne(slice).size(), 1u);
  // The other way round is no bypass: memory that is charged and not yet, or no more, at the
  // driver.
  slice.processes[0].held = {9000 * kMib};
  EXPECT_TRUE(JudgeOne(slice).empty());
}

TEST(Judge, NamesPidCommandAndFigures) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].driver = {6000 * kMib};
  const std::vector<Finding> findings = JudgeOne(slice);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, Bypass::kUncharged);
  EXPECT_EQ(findings[0].text,
            "slice chat: pid 1234 (python) holds 6,000 MiB by the driver, 2,000 MiB by its ledger");
  EXPECT_EQ(findings[0].process.pid, 1234);
}

TEST(Judge, FindsAProcessWithoutTheFence) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].mapped = Mapped{false, true, false};
  slice.processes[0].driver = {std::nullopt};
  ASSERT_EQ(JudgeOne(slice).size(), 1u);
  EXPECT_EQ(JudgeOne(slice)[0].kind, Bypass::kNoFence);
  // Static program: no library of the driver's is mapped, only the driver knows it.
  slice.processes[0].mapped = Mapped{false, false, false};
  slice.processes[0].driver = {10 * kMib};
  ASSERT_EQ(JudgeOne(slice).size(), 1u);
  EXPECT_EQ(JudgeOne(slice)[0].kind, Bypass::kNoFence);
  // One that never touches the card needs no fence.
  slice.processes[0].driver = {std::nullopt};
  EXPECT_TRUE(JudgeOne(slice).empty());
  // What may not be seen accuses nobody.
  slice.processes[0].mapped = std::nullopt;
  EXPECT_TRUE(JudgeOne(slice).empty());
}

TEST(Judge, FindsOtherCardsAndOtherPolicies) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].other_cards = {1};
  slice.processes[0].policy_is_ours = false;
  const std::vector<Finding> findings = JudgeOne(slice);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, Bypass::kOtherCard);
  EXPECT_EQ(findings[0].text,
            "slice chat: pid 1234 (python) uses card 1, which is not in its slice");
  EXPECT_EQ(findings[1].kind, Bypass::kPolicyReplaced);
}

TEST(Judge, ALedgerThatIsNoneIsAFindingOfTheSlice) {
  SliceFacts slice = WellBehaved();
  slice.ledger = Fail(Code::kDataLoss, "ledger: too short");
  const std::vector<Finding> findings = JudgeOne(slice);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, Bypass::kLedgerLost);
  EXPECT_EQ(findings[0].process.pid, 0);
  // A reader that is older than both files, or may not read them, accuses nobody.
  slice.ledger = Fail(Code::kUnimplemented, "layout 2");
  EXPECT_TRUE(JudgeOne(slice).empty());
  slice.ledger = Fail(Code::kNotFound, "no such file");
  EXPECT_TRUE(JudgeOne(slice).empty());
  slice.ledger = Fail(Code::kPermissionDenied, "root's");
  EXPECT_TRUE(JudgeOne(slice).empty());
}

TEST(Judge, ALedgerOfAnotherLayoutBesideAKnownPolicyIsLost) {
  SliceFacts slice = WellBehaved();
  slice.policy = node::PolicyView{};
  for (const Code code : {Code::kUnimplemented, Code::kNotFound, Code::kDataLoss}) {
    slice.ledger = Fail(code, "ledger");
    ASSERT_EQ(JudgeOne(slice).size(), 1u);
    EXPECT_EQ(JudgeOne(slice)[0].kind, Bypass::kLedgerLost);
  }
  slice.ledger = Fail(Code::kPermissionDenied, "root's");
  EXPECT_TRUE(JudgeOne(slice).empty());
}

TEST(Judge, WhoAdmitsBeingOverTheLimitIsStillOver) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].held = {20000 * kMib};
  slice.processes[0].driver = {20000 * kMib};
  const std::vector<Finding> findings = JudgeOne(slice);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, Bypass::kOverLimit);
  EXPECT_EQ(findings[0].process.pid, 1234);
  EXPECT_EQ(findings[0].text,
            "slice chat: pid 1234 (python) holds 20,000 MiB by the driver, promised 8,000 MiB at "
            "most");
  // Held rightfully before the limit was lowered.
  slice.record.most_bytes = {20000 * kMib};
  EXPECT_TRUE(JudgeOne(slice).empty());
}

TEST(Judge, ManyProcessesTogetherAreOverTheLimit) {
  SliceFacts slice = WellBehaved();
  slice.processes.push_back(slice.processes[0]);
  slice.processes[1].process.identity = {1235, 78};
  for (SliceProcess& process : slice.processes) {
    process.held = {5000 * kMib};
    process.driver = {5000 * kMib};
  }
  ASSERT_EQ(JudgeOne(slice).size(), 1u);
  EXPECT_EQ(JudgeOne(slice)[0].kind, Bypass::kOverLimit);
  EXPECT_EQ(JudgeOne(slice)[0].process.pid, 0) << "memory that they share may be in both figures";
  EXPECT_EQ(JudgeOne(slice)[0].text,
            "slice chat: its processes hold 10,000 MiB together by the driver, promised 8,000 MiB "
            "at most");
}

TEST(Judge, ThePolicyFileSaysWhatHappensNow) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].driver = {6000 * kMib};
  slice.record.bypass = contract::BypassAction::kReport;
  slice.policy = node::PolicyView{};
  slice.policy->bypass_action = 2;
  EXPECT_EQ(JudgeOne(slice)[0].action, contract::BypassAction::kKill);
  slice.policy->bypass_action = 99;
  EXPECT_EQ(JudgeOne(slice)[0].action, contract::BypassAction::kReport);
}

TEST(Judge, ManyThatEachStayBelowTheToleranceAreFoundTogether) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].held = {300 * kMib};
  slice.processes[0].driver = {360 * kMib};
  for (int i = 0; i < 4; ++i) slice.processes.push_back(slice.processes[0]);
  EXPECT_EQ(SliceTolerance(0), 256 * kMib);
  ASSERT_EQ(JudgeOne(slice).size(), 1u) << "300 MiB in all";
  EXPECT_EQ(JudgeOne(slice)[0].kind, Bypass::kUncharged);
  EXPECT_EQ(JudgeOne(slice)[0].process.pid, 0) << "a sum accuses nobody";
  slice.processes.pop_back();
  EXPECT_TRUE(JudgeOne(slice).empty()) << "240 MiB in all";
}

TEST(Judge, WithoutALedgerWhateverIsHeldIsUncharged) {
  for (const Code code : {Code::kDataLoss, Code::kNotFound, Code::kUnimplemented}) {
    SliceFacts slice = WellBehaved();
    slice.policy = node::PolicyView{};
    slice.ledger = Fail(code, "ledger: gone");
    slice.processes[0].held = {0};
    const std::vector<Finding> findings = JudgeOne(slice);
    ASSERT_EQ(findings.size(), 2u);
    EXPECT_EQ(findings[0].kind, Bypass::kLedgerLost);
    EXPECT_EQ(findings[1].kind, Bypass::kUncharged);
  }
}

TEST(Confirmer, ActsOnWhatStandsTwice) {
  SliceFacts slice = WellBehaved();
  slice.processes[0].driver = {6000 * kMib};
  const std::vector<Finding> findings = JudgeOne(slice);
  Confirmer confirmer;
  EXPECT_TRUE(confirmer.Confirm(findings).empty());
  EXPECT_EQ(confirmer.Confirm(findings).size(), 1u);
  EXPECT_TRUE(confirmer.Confirm({}).empty());
  EXPECT_TRUE(confirmer.Confirm(findings).empty()) << "gone in between: begins anew";
  std::vector<Finding> other = findings;
  other[0].process.start_ticks += 1;
  EXPECT_TRUE(confirmer.Confirm(other).empty()) << "the pid is somebody else's now";
}

}  // namespace
}  // namespace tessera::watch
