#include "node/slice_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/files.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

using contract::LedgerFile;

constexpr std::uint64_t kCard = 1000 * model::kMib;

class SliceFilesTest : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    path_ = folder_ + "/ledger";
    ASSERT_TRUE(CreateLedger(path_, 0644));
    bytes_ = *base::ReadFile(path_, 64 << 20);
  }

  LedgerFile& ledger() { return *reinterpret_cast<LedgerFile*>(bytes_.data()); }

  // A slot as the fence of this very process would fill it.
  void Claim(std::uint32_t index, std::uint64_t bytes,
             base::ProcessIdentity who = base::OwnIdentity()) {
    contract::LedgerSlot& slot = ledger().slots[index];
    slot.owner = who.start_ticks << contract::kOwnerStartShift |
                 static_cast<std::uint64_t>(who.pid) << contract::kOwnerPidShift |
                 static_cast<std::uint64_t>(contract::SlotState::kLive);
    slot.pid_namespace = base::NamespaceInode(getpid(), "pid");
    slot.stack_start = base::ReadProcessStat(getpid())->stack_start;
    slot.cards[0].held[0] = bytes << contract::kBytesShift;
    std::strcpy(slot.command, "mine");
  }

  LedgerView View() {
    Result<LedgerView> view = LedgerFromBytes("ledger", bytes_, {kCard});
    EXPECT_TRUE(view) << view.error().message;
    return view.value_or(LedgerView{});
  }

  std::string path_, bytes_;
};

TEST_F(SliceFilesTest, LedgerHasAllItsBlocks) {
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(LedgerFile)));
  EXPECT_GE(info.st_blocks * 512, info.st_size);
}

TEST_F(SliceFilesTest, LiveSlotsAreAddedUpAndDeadOnesAreNot) {
  Claim(0, 100);
  Claim(7, 23);
  base::ProcessIdentity dead = base::OwnIdentity();
  dead.start_ticks += 1;
  Claim(8, 500, dead);
  Claim(9, 500);
  ledger().slots[9].stack_start = 4711;  // the same pid before it exec'ed
  Claim(10, 500);
  ledger().slots[10].owner = (ledger().slots[10].owner & ~std::uint64_t{7}) | 2;  // being reaped
  LedgerView view = View();
  EXPECT_EQ(view.cards[0].held_bytes, 123u);
  EXPECT_EQ(view.slots.size(), 5u);
  EXPECT_TRUE(view.slots[0].live);
  EXPECT_EQ(view.slots[0].command, "mine");
  EXPECT_FALSE(view.slots[2].live);
  EXPECT_TRUE(view.remarks.empty());
}

TEST_F(SliceFilesTest, AForgedFigureIsCutAndNamed) {
  Claim(0, std::uint64_t{1} << 47);
  LedgerView view = View();
  EXPECT_EQ(view.cards[0].held_bytes, kCard);
  ASSERT_EQ(view.remarks.size(), 1u);
  EXPECT_NE(view.remarks[0].find("more than the card has"), std::string::npos);
}

TEST_F(SliceFilesTest, ACommandCannotTouchTheTerminal) {
  Claim(0, 1);
  std::memcpy(ledger().slots[0].command, "\x1b[2Jx\n\xff", 8);
  EXPECT_EQ(View().slots[0].command, "?[2Jx??");
}

TEST_F(SliceFilesTest, AllSlotsClaimedByOneProcess) {
  for (std::uint32_t i = 0; i < contract::kMaxSlots; ++i) Claim(i, 1);
  ledger().header.slots_refused = 3;
  LedgerView view = View();
  EXPECT_EQ(view.slots.size(), contract::kMaxSlots);
  EXPECT_EQ(view.cards[0].held_bytes, contract::kMaxSlots);
  EXPECT_EQ(view.slots_refused, 3u);
}

TEST_F(SliceFilesTest, AnUnseenPidNamespaceCounts) {
  Claim(0, 10, {999'999, 5});
  ledger().slots[0].pid_namespace = 42;
  EXPECT_EQ(View().cards[0].held_bytes, 10u);
}

// Each change makes a file that no fence would write; none may be followed.
TEST_F(SliceFilesTest, HeadersThatLieAreRefused) {
  const std::string whole = bytes_;
  auto refused = [&](const char* what, auto change, Code code = Code::kDataLoss) {
    bytes_ = whole;
    change(ledger().header);
    Result<LedgerView> view = LedgerFromBytes("ledger", bytes_, {kCard});
    ASSERT_FALSE(view) << what;
    EXPECT_EQ(view.error().code, code) << what;
    EXPECT_EQ(view.error().message.find('\n'), std::string::npos);
  };
  using H = contract::LedgerHeader;
  refused("magic", [](H& h) { h.magic = 0; });
  refused("layout", [](H& h) { h.layout = 2; }, Code::kUnimplemented);
  refused("slots offset", [](H& h) { h.slots_offset = 0xffffffff; });
  refused("slots into the header", [](H& h) { h.slots_offset = 0; });
  refused("stride 0", [](H& h) { h.slot_stride = 0; });
  refused("stride too small", [](H& h) { h.slot_stride = 8; });
  refused("stride wraps", [](H& h) { h.slot_stride = 0x80000000; });
  refused("slots", [](H& h) { h.slot_count = 0xffffffff; });
  refused("one slot too many", [](H& h) { h.slot_count = 4097; });
  refused("cards", [](H& h) { h.card_count = 17; });
  refused("card stride", [](H& h) { h.card_stride = 0xfffffff8; });
  refused("kinds", [](H& h) { h.kinds = 9; });
  refused("file bytes", [](H& h) { h.file_bytes = 0xffffffff; });
  bytes_ = whole.substr(0, 511);
  EXPECT_FALSE(LedgerFromBytes("ledger", bytes_, {kCard}));
  bytes_ = "";
  EXPECT_FALSE(LedgerFromBytes("ledger", bytes_, {kCard}));
}

TEST_F(SliceFilesTest, HolesAndWhatIsBehindTheEndAreNotCopied) {
  Claim(0, 7);
  Claim(contract::kMaxSlots - 1, 5);
  const base::Fd file(open(path_.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC));
  const auto put = [&](std::size_t at, std::size_t size) {
    ASSERT_EQ(pwrite(file.get(), bytes_.data() + at, size, static_cast<off_t>(at)),
              static_cast<ssize_t>(size));
  };
  const std::size_t last =
      offsetof(LedgerFile, slots) + (contract::kMaxSlots - 1) * sizeof(contract::LedgerSlot);
  put(0, offsetof(LedgerFile, slots) + sizeof(contract::LedgerSlot));
  put(last, sizeof(contract::LedgerSlot));
  const auto held = [&] {
    const Result<base::Folder> slice = base::Folder::Open(folder_);
    const Result<LedgerView> view = ReadLedger(*slice, {kCard});
    EXPECT_TRUE(view) << view.error().message;
    return view.value_or(LedgerView{});
  };
  EXPECT_EQ(held().cards[0].held_bytes, 12u);
  EXPECT_TRUE(held().remarks.empty());
  ASSERT_EQ(ftruncate(file.get(), 32 << 20), 0);
  EXPECT_EQ(held().cards[0].held_bytes, 12u);
  ASSERT_EQ(held().remarks.size(), 1u);
  EXPECT_NE(held().remarks[0].find("length was changed"), std::string::npos);
}

TEST_F(SliceFilesTest, ANewerLongerFileIsRead) {
  Claim(0, 5);
  bytes_.resize(bytes_.size() + 4096);
  ledger().header.file_bytes += 4096;
  LedgerView view = View();
  EXPECT_EQ(view.cards[0].held_bytes, 5u);
  EXPECT_TRUE(view.remarks.empty());
}

TEST_F(SliceFilesTest, SurvivesATenantThatTruncatesWhileItIsRead) {
  std::atomic<bool> stop{false};
  std::thread tenant([&] {
    while (!stop) {
      if (truncate(path_.c_str(), 4096) != 0 || truncate(path_.c_str(), sizeof(LedgerFile)) != 0)
        break;
    }
  });
  for (int i = 0; i < 200; ++i) {
    Result<LedgerView> view = ReadLedger(*base::Folder::Open(folder_), {kCard});
    if (!view) {
      EXPECT_EQ(view.error().code, Code::kDataLoss);
    }
  }
  stop = true;
  tenant.join();
}

TEST_F(SliceFilesTest, WhatIsNoRegularFileIsNotRead) {
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ReadLedger(*base::Folder::Open(folder_), {kCard}).error().code, Code::kDataLoss);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_FALSE(ReadLedger(*base::Folder::Open(folder_), {kCard}));
}

class PolicyTest : public ScratchTest {
 protected:
  PolicyText Text() {
    PolicyText text;
    text.slice = {
        "id", "name", {{TwoCards().cards[0].uuid, 500 * model::kMib, 30}}, model::Priority::kHigh};
    text.cards = {TwoCards().cards[0]};
    text.bypass = contract::BypassAction::kPause;
    return text;
  }
};

// Outside is refused what the fence refuses inside, with field, value and what is legal.
TEST_F(PolicyTest, IsCheckedAsTheFenceChecksIt) {
  const std::string path = folder_ + "/policy";
  ASSERT_TRUE(CreatePolicy(path, Text(), 0644));
  std::string bytes = *base::ReadFile(path, 1 << 20);
  const auto refused = [&](std::size_t offset, std::uint32_t value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + offset, &value, sizeof value);
    const Result<PolicyView> view = PolicyFromBytes("policy", changed);
    return view ? "accepted" : view.error().message;
  };
  const std::size_t card = sizeof(contract::PolicyHeader);
  EXPECT_EQ(refused(card + offsetof(contract::PolicyCard, compute_percent), 101),
            "policy: damaged: compute_percent is 101, legal is 1..100");
  EXPECT_EQ(refused(card + offsetof(contract::PolicyCard, priority), 7),
            "policy: damaged: priority is 7, legal is 0 high, 1 low");
  EXPECT_EQ(refused(offsetof(contract::PolicyHeader, bypass_action), 9),
            "policy: damaged: bypass_action is 9, legal is 0 report, 1 pause, 2 kill");
  EXPECT_EQ(refused(offsetof(contract::PolicyHeader, layout), 2),
            "policy: layout 2, this tessera reads layout 1");
}

TEST_F(PolicyTest, IsNotWrittenWhenNobodyWouldReadIt) {
  PolicyText text = Text();
  text.cards[0].uuid = {};
  const Status made = CreatePolicy(folder_ + "/policy", text, 0644);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("uuid is 0, legal is not all zero"), std::string::npos);
  EXPECT_FALSE(base::ReadFile(folder_ + "/policy", 1 << 20));
}

TEST_F(PolicyTest, WritesWhatItReads) {
  std::string path = folder_ + "/policy";
  ASSERT_TRUE(CreatePolicy(path, Text(), 0644));
  Result<PolicyView> view = ReadPolicy(path);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->slice_id, "id");
  EXPECT_EQ(view->generation, 1u);
  EXPECT_EQ(view->bypass_action, 1u);
  ASSERT_EQ(view->cards.size(), 1u);
  EXPECT_EQ(view->cards[0].limit_bytes, 500 * model::kMib);
  EXPECT_EQ(view->cards[0].ceiling_bytes, 10'000 * model::kMib);
  EXPECT_EQ(view->cards[0].compute_percent, 30u);
  EXPECT_EQ(view->cards[0].priority, 0u);
  EXPECT_TRUE(view->cards[0].gate_open);
}

TEST_F(PolicyTest, HeadersThatLieAreRefused) {
  std::string path = folder_ + "/policy";
  ASSERT_TRUE(CreatePolicy(path, Text(), 0644));
  const std::string whole = *base::ReadFile(path, 1 << 20);
  // Every byte of the header's numbers, set to values that overflow, vanish or grow.
  for (std::size_t offset = 0; offset < 36; ++offset) {
    for (int value : {0x00, 0x7f, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[offset] = static_cast<char>(value);
      Result<PolicyView> view = PolicyFromBytes("policy", bytes);
      if (view) {
        EXPECT_LE(view->cards.size(), contract::kMaxCards);
      }
    }
  }
  for (std::size_t size : {0u, 1u, 511u, 512u, 767u})
    EXPECT_FALSE(PolicyFromBytes("policy", whole.substr(0, size)));
}

}  // namespace
}  // namespace tessera::node
