// Real slice directories, a written-down /proc and driver.
#include "watch/snapshot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <random>
#include <thread>

#include "base/clock.h"
#include "driver/testing/fake_nvml.h"
#include "model/quantity.h"
#include "node/slice_folder.h"
#include "watch/judge.h"
#include "watch/maps_reader.h"
#include "watch/testing/fake_processes.h"

namespace tessera::watch {
namespace {

using model::kMib;

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() {
    directory_ = ::testing::TempDir() + "/slice-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    nvml_.cards->push_back(driver::testing::A10G(0));
    nvml_.cards->push_back(driver::testing::A10G(1));
    nvml_.usages->push_back(driver::CardUsage{});
    nvml_.usages->push_back(driver::CardUsage{});

    record_.slice.id = "chat-1";
    record_.slice.name = "chat";
    record_.slice.cards.push_back(
        {*model::ParseUuid(driver::testing::A10G(0).uuid), 8000 * kMib, 30});
    record_.directory = directory_;
    record_.mount_namespace = 5555;
    record_.live = true;

    node::PolicyText policy;
    policy.slice = record_.slice;
    model::Card card;
    card.uuid = record_.slice.cards[0].uuid;
    card.memory_bytes = 23028 * kMib;
    policy.cards.push_back(card);
    EXPECT_TRUE(node::CreatePolicy(directory_ + "/policy", policy, 0644));
    EXPECT_TRUE(node::CreateLedger(directory_ + "/ledger", 0666));
    processes_.own_pid_namespace = base::NamespaceInode(getpid(), "pid");
    sources_.nvml = &nvml_;
    sources_.processes = &processes_;
    sources_.clock = &clock_;
  }

  // A process in the slice that holds `bytes` by its ledger.
  void AddProcess(const base::ProcessIdentity& identity, const char* command) {
    processes_.all.push_back({identity, 1, 'S', command, 5555, processes_.own_pid_namespace});
    processes_.maps[identity.pid] = Mapped{true, true, true};
  }

  void WriteLedger(std::size_t offset, const void* data, std::size_t size) {
    const int fd = open((directory_ + "/ledger").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(pwrite(fd, data, size, static_cast<off_t>(offset)), static_cast<ssize_t>(size));
    close(fd);
  }

  void WriteSlot(std::uint32_t index, const base::ProcessIdentity& owner, std::uint64_t bytes) {
    contract::LedgerSlot slot{};
    slot.owner = (owner.start_ticks << contract::kOwnerStartShift) |
                 (static_cast<std::uint64_t>(owner.pid) << contract::kOwnerPidShift) |
                 static_cast<std::uint64_t>(contract::SlotState::kLive);
    slot.pid_namespace = processes_.own_pid_namespace;
    slot.cards[0].held[0] = bytes << contract::kBytesShift;
    WriteLedger(offsetof(contract::LedgerFile, slots) + index * sizeof slot, &slot, sizeof slot);
  }

  Snapshot Take() {
    node::Inventory inventory;
    inventory.live.push_back(record_);
    return MakeSnapshot(inventory, sources_);
  }

  std::string directory_;
  driver::testing::FakeNvml nvml_;
  testing::FakeProcesses processes_;
  base::FakeClock clock_;
  node::SliceRecord record_;
  Sources sources_;
  const base::ProcessIdentity own_ = base::OwnIdentity();
};

TEST_F(SnapshotTest, PutsLedgerProcessAndDriverSideBySide) {
  AddProcess(own_, "python");
  WriteSlot(0, own_, 2000 * kMib);
  (*nvml_.usages)[0]->processes = {{static_cast<std::uint32_t>(own_.pid), 2010 * kMib}};
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.slices.size(), 1u);
  const SliceFacts& slice = snapshot.slices[0];
  EXPECT_TRUE(slice.remarks.empty()) << slice.remarks[0];
  ASSERT_EQ(slice.processes.size(), 1u);
  EXPECT_EQ(slice.processes[0].held[0], 2000 * kMib);
  EXPECT_EQ(slice.processes[0].driver[0], 2010 * kMib);
  EXPECT_EQ(slice.processes[0].slot, 0u);
  EXPECT_EQ(slice.processes[0].by, Belongs::kMountNamespace);
  EXPECT_EQ(snapshot.cards[0].promised_bytes, 8000 * kMib);
  EXPECT_EQ(snapshot.cards[0].held_bytes, 2000 * kMib);
  EXPECT_EQ(snapshot.cards[0].promised_cores, 30u);
  EXPECT_EQ(snapshot.cards[1].slices, 0u);
  EXPECT_TRUE(snapshot.foreign.empty());
  EXPECT_TRUE(Judge(snapshot).empty());
}

TEST_F(SnapshotTest, AProcessInNoSliceIsForeign) {
  processes_.all.push_back({{999, 1}, 1, 'S', "Xorg", 1, 1});
  (*nvml_.usages)[1]->processes = {{999, 120 * kMib}, {31337, std::nullopt}};
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.foreign.size(), 2u);
  EXPECT_EQ(snapshot.foreign[0].command, "Xorg");
  EXPECT_EQ(snapshot.foreign[0].card, 1);
  EXPECT_EQ(snapshot.foreign[1].command, "") << "of another pid namespace";
}

TEST_F(SnapshotTest, ASliceGetsNoOtherUsersProcess) {
  // slice.json is text of whoever owns it: here it names a namespace, and a launcher, of somebody
  // else.
  record_.owner = 1000;
  record_.launcher = {300, 7};
  processes_.all.push_back({{300, 7}, 1, 'S', "victim", 1, processes_.own_pid_namespace});
  AddProcess(own_, "victim");
  processes_.users = {{300, 0}, {own_.pid, 1001}};
  EXPECT_TRUE(Take().slices[0].processes.empty());
  processes_.users = {{300, 1000}, {own_.pid, 1000}};
  EXPECT_EQ(Take().slices[0].processes.size(), 2u);
  record_.owner = 0;
  processes_.users = {{300, 54321}, {own_.pid, 0}};
  EXPECT_EQ(Take().slices[0].processes.size(), 2u) << "su inside a slice of root";
}

TEST_F(SnapshotTest, WhoSeesThePolicyBelongsWhereverHisParentsAre) {
  record_.fencing = node::Fencing::kNamespace;
  processes_.all.push_back({{400, 9}, 1, 'S', "leaver", 777, 1});
  processes_.maps[400] = Mapped{};
  processes_.policies[400] = *node::PlaceOfPolicy(record_);
  EXPECT_TRUE(Take().slices[0].processes.empty())
      << "only those that the driver names are looked at";
  (*nvml_.usages)[0]->processes = {{400, 500 * kMib}};
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.slices[0].processes.size(), 1u);
  EXPECT_EQ(snapshot.slices[0].processes[0].by, Belongs::kSeesPolicy);
  EXPECT_TRUE(snapshot.foreign.empty());
}

TEST_F(SnapshotTest, WhoIsInTheSlicesUserNamespaceBelongsWhateverHeSees) {
  record_.user_namespace = 6666;
  processes_.all.push_back({{400, 9}, 1, 'S', "leaver", 777, 1});
  processes_.maps[400] = Mapped{false, true, false};
  processes_.user_namespaces[400] = 6666;
  (*nvml_.usages)[0]->processes = {{400, 500 * kMib}};
  EXPECT_TRUE(Take().slices[0].processes.empty())
      << "nothing of the slice lives: the number may be another's";
  AddProcess(own_, "python");
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.slices[0].processes.size(), 2u);
  EXPECT_TRUE(snapshot.foreign.empty());
  const std::vector<Finding> findings = Judge(snapshot);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].process.pid, 400);
  processes_.user_namespaces[400] = 6667;
  EXPECT_TRUE(Judge(Take()).empty()) << "of another slice";
  EXPECT_EQ(Take().foreign.size(), 1u);
  processes_.user_namespaces.clear();
  record_.user_namespace = 0;
  EXPECT_TRUE(Judge(Take()).empty()) << "a slice without one adopts nobody";
}

TEST_F(SnapshotTest, MapsThatTakeTooLongAreNotAllRead) {
  for (pid_t pid = 300; pid < 310; ++pid) {
    AddProcess({pid, 1}, "slow");
    processes_.maps[pid] = Mapped{false, true, false};
  }
  AddProcess(own_, "python");
  record_.launcher = own_;
  EXPECT_EQ(Judge(Take()).size(), 10u);
  processes_.maps_clock = &clock_;
  processes_.maps_take_ns = kMapsBudgetNs / 2;
  const Snapshot snapshot = Take();
  EXPECT_EQ(snapshot.slices[0].processes.size(), 11u);
  EXPECT_LE(Judge(snapshot).size(), 3u) << "nobody is accused for what was not read";
  ASSERT_EQ(snapshot.slices[0].remarks.size(), 1u);
  EXPECT_EQ(snapshot.slices[0].remarks[0],
            "maps: those of 9 processes were not read, the others took too long");
}

TEST_F(SnapshotTest, ANamespaceWhoseNumberIsUsedAgainMakesNobodyAMember) {
  // All of this slice have left their namespace; the kernel gave its number to another tenant's.
  processes_.all.push_back({{500, 4}, 1, 'S', "neighbour", 5555, processes_.own_pid_namespace});
  processes_.maps[500] = Mapped{true, true, false};
  processes_.policies[500] = "0:9 /another/policy";
  record_.fencing = node::Fencing::kNamespace;
  (*nvml_.usages)[0]->processes = {{500, 900 * kMib}};
  const Snapshot snapshot = Take();
  EXPECT_TRUE(snapshot.slices[0].processes.empty());
  EXPECT_TRUE(Judge(snapshot).empty());
  // Where one of them is certainly of this slice, all in its namespace are, whatever they see
  // there.
  AddProcess(own_, "python");
  EXPECT_EQ(Take().slices[0].processes.size(), 2u);
}

TEST_F(SnapshotTest, ASliceThatUsesAnotherCardIsFound) {
  AddProcess(own_, "python");
  (*nvml_.usages)[1]->processes = {{static_cast<std::uint32_t>(own_.pid), 5 * kMib}};
  const Snapshot snapshot = Take();
  EXPECT_TRUE(snapshot.foreign.empty());
  ASSERT_EQ(Judge(snapshot).size(), 1u);
  EXPECT_EQ(Judge(snapshot)[0].kind, Bypass::kOtherCard);
}

TEST_F(SnapshotTest, ChildrenBelongThoughTheyLeftTheNamespace) {
  AddProcess({100, 1}, "sh");
  processes_.all.push_back(
      {{50, 9}, 100, 'S', "escaped", 777, 1});  // a lower pid than its parent's
  processes_.all.push_back({{51, 9}, 50, 'S', "grandchild", 778, 1});
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.slices[0].processes.size(), 3u);
  EXPECT_EQ(snapshot.slices[0].processes[0].by, Belongs::kDescendant);
}

TEST_F(SnapshotTest, ALedgerThatNamesStrangersIsRemarkedAndNotBelieved) {
  // The test's parent lives and is in no slice.
  const Result<base::ProcessStat> parent = base::ReadProcessStat(getppid());
  ASSERT_TRUE(parent);
  WriteSlot(3, parent->identity, 100 * kMib);
  processes_.all.push_back({parent->identity, 1, 'S', "shell", 1, processes_.own_pid_namespace});
  processes_.maps[parent->identity.pid] = Mapped{};
  const Snapshot snapshot = Take();
  EXPECT_TRUE(snapshot.slices[0].processes.empty());
  ASSERT_EQ(snapshot.slices[0].remarks.size(), 1u);
  EXPECT_EQ(snapshot.slices[0].remarks[0],
            "ledger: names pid " + std::to_string(parent->identity.pid) + ", not in this slice");
}

TEST_F(SnapshotTest, MoreThanTheLimitAndMoreThanTheCardAreRemarked) {
  AddProcess(own_, "python");
  WriteSlot(0, own_, 9000 * kMib);
  EXPECT_EQ(Take().slices[0].remarks[0],
            "ledger: 9,000 MiB held is above the limit of 8,000 MiB (lowered below what was held, "
            "or forged)");
  WriteSlot(0, own_, (std::uint64_t{1} << 47));
  const Snapshot snapshot = Take();
  EXPECT_LE(snapshot.cards[0].held_bytes, 23028 * kMib);
  EXPECT_FALSE(snapshot.slices[0].remarks.empty());
}

TEST_F(SnapshotTest, TruncatedAndReplacedLedgersAreSaid) {
  AddProcess(own_, "python");
  ASSERT_EQ(truncate((directory_ + "/ledger").c_str(), 100), 0);
  Snapshot snapshot = Take();
  EXPECT_FALSE(snapshot.slices[0].ledger);
  EXPECT_FALSE(snapshot.slices[0].remarks.empty());
  EXPECT_EQ(Judge(snapshot)[0].kind, Bypass::kLedgerLost);
  ASSERT_EQ(unlink((directory_ + "/ledger").c_str()), 0);
  ASSERT_EQ(mkfifo((directory_ + "/ledger").c_str(), 0666), 0);
  snapshot = Take();  // returns: a FIFO without writer would block an ordinary open
  EXPECT_FALSE(snapshot.slices[0].ledger);
}

TEST_F(SnapshotTest, SurvivesScribbledLedgers) {
  AddProcess(own_, "python");
  WriteSlot(0, own_, 2000 * kMib);
  std::mt19937_64 random(20);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t word = round % 3 == 0 ? ~std::uint64_t{0} : random();
    const std::size_t offset =
        round % 2 == 0 ? random() % 2560 : 8192 + random() % (64 * sizeof(contract::LedgerSlot));
    WriteLedger(offset, &word, 1 + random() % sizeof word);
    const Snapshot snapshot = Take();
    ASSERT_EQ(snapshot.slices.size(), 1u);
    ASSERT_LE(snapshot.cards[0].held_bytes, 23028 * kMib);
    for (const std::string& remark : snapshot.slices[0].remarks) {
      ASSERT_EQ(Printable(remark), remark);
    }
    Judge(snapshot);
    if (round % 100 == 99) {
      ASSERT_TRUE(node::CreateLedger(directory_ + "/ledger2", 0666));
      ASSERT_EQ(rename((directory_ + "/ledger2").c_str(), (directory_ + "/ledger").c_str()), 0);
    }
  }
}

TEST_F(SnapshotTest, ALostCardLeavesTheOthers) {
  (*nvml_.cards)[0] = Fail(Code::kDeadlineExceeded, "card 0: no answer in time");
  const Snapshot snapshot = Take();
  ASSERT_EQ(snapshot.cards.size(), 2u);
  EXPECT_FALSE(snapshot.cards[0].card);
  EXPECT_TRUE(snapshot.cards[1].card);
  EXPECT_EQ(snapshot.slices.size(), 1u);
}

TEST_F(SnapshotTest, WithoutADriverTheLedgersStillSpeak) {
  sources_.nvml = Fail(Code::kUnavailable, "no NVIDIA driver");
  AddProcess(own_, "python");
  WriteSlot(0, own_, 2000 * kMib);
  const Snapshot snapshot = Take();
  EXPECT_FALSE(snapshot.driver);
  EXPECT_EQ(snapshot.slices[0].ledger->cards[0].held_bytes, 2000 * kMib);
}

TEST_F(SnapshotTest, AStateDirectoryThatIsNoneIsSaid) {
  EXPECT_EQ(TakeSnapshot(directory_ + "/policy", sources_).state_error->message,
            "--state: '" + directory_ +
                "/policy' cannot hold promises: not a directory; give a directory that you may "
                "write");
  const Snapshot missing = TakeSnapshot(directory_ + "/missing", sources_);
  EXPECT_FALSE(missing.state_error);
  EXPECT_EQ(missing.state_note, "Nothing was ever promised in " + directory_ + "/missing.");
}

TEST(RealProcesses, SeeThisProcess) {
  bool found = false;
  for (const ProcessEntry& process : RealProcesses().All()) {
    if (process.identity != base::OwnIdentity()) continue;
    found = true;
    EXPECT_EQ(process.mount_namespace, base::NamespaceInode(getpid(), "mnt"));
    EXPECT_NE(RealProcesses().CommandLine(process).find("test"), std::string::npos);
  }
  EXPECT_TRUE(found);
  struct stat info{};
  ASSERT_EQ(stat("/proc/self/exe", &info), 0);
  const std::optional<Mapped> mapped = RealProcesses().Maps(getpid(), {info.st_dev, info.st_ino});
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->ledger) << "the file asked about is mapped";
  EXPECT_FALSE(mapped->driver);
  EXPECT_FALSE(RealProcesses().Maps(0x3fffff, {}));
  EXPECT_TRUE(RealProcesses().PolicyOf(getpid()).readable);
  EXPECT_FALSE(RealProcesses().PolicyOf(getpid()).place) << "in no slice";
  RealProcesses().EndLook();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a look leaves no child";
}

TEST(RealProcesses, SeeOneWhoseFirstThreadHasEndedByAnother) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t first = getpid();
    std::thread([first, to = ready[1]] {
      while (base::ReadProcessStat(first)->state != 'Z') usleep(1000);
      if (write(to, "+", 1) != 1) _exit(1);
      for (;;) pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  struct stat info{};
  ASSERT_EQ(stat("/proc/self/exe", &info), 0);
  const FileIdentity program{info.st_dev, info.st_ino};
  const std::optional<Mapped> mapped = RealProcesses().Maps(child, program);
  EXPECT_TRUE(mapped && mapped->ledger) << "the file asked about is mapped";
  EXPECT_TRUE(RealProcesses().PolicyOf(child).readable);
  for (const ProcessEntry& process : RealProcesses().All()) {
    if (process.identity.pid != child) continue;
    EXPECT_EQ(process.mount_namespace, base::NamespaceInode(getpid(), "mnt"));
    EXPECT_NE(RealProcesses().CommandLine(process).find("watch_test"), std::string::npos);
  }
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  EXPECT_FALSE(RealProcesses().Maps(child, program)) << "without memory nothing is said of a fence";
  RealProcesses().EndLook();
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tessera::watch
