#include "node/store.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <random>
#include <thread>

#include "base/files.h"
#include "contract/names.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

using StoreTest = ScratchTest;

std::uint64_t PromisedOn(const Inventory& inventory, const model::Uuid& uuid) {
  std::uint64_t sum = 0;
  for (const SliceRecord& record : inventory.live) {
    for (const model::SliceCard& card : record.slice.cards) {
      if (card.uuid == uuid) sum += card.memory_bytes;
    }
  }
  return sum;
}

TEST_F(StoreTest, CommitIsSeenAndRemoveGivesBack) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(8000, "chat"));
  ASSERT_TRUE(record) << record.error().message;
  Result<SliceRecord> found = store.Find("chat");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->slice.id, record->slice.id);
  EXPECT_EQ(found->command, "/bin/sleep 60");
  EXPECT_EQ(found->owner, geteuid());
  Result<PolicyView> policy = ReadPolicy(found->directory + "/policy");
  ASSERT_TRUE(policy);
  EXPECT_EQ(policy->cards[0].limit_bytes, 8000 * model::kMib);
  EXPECT_EQ(policy->slice_name, "chat");
  ASSERT_TRUE(ReadLedger(*OpenSlice(*found), {10'000 * model::kMib}));
  ASSERT_TRUE(store.Remove(*record));
  EXPECT_FALSE(store.Find("chat"));
  EXPECT_TRUE(Entries().empty());
}

TEST_F(StoreTest, RefusesBeyondTheCardAndLeavesNothing) {
  Store store = Open();
  ASSERT_TRUE(store.Commit(TwoCards(), Asking(8000)));
  ASSERT_TRUE(store.Commit(TwoCards(), Asking(8000)));
  Result<SliceRecord> third = store.Commit(TwoCards(), Asking(3000));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kResourceExhausted);
  EXPECT_EQ(third.error().message,
            "no room for 1 card: card 0: asked 3,000 MiB, free 2,000 MiB of 10,000 MiB (1 slice); "
            "card 1: asked 3,000 MiB, free 2,000 MiB of 10,000 MiB (1 slice)");
  EXPECT_EQ(Entries().size(), 2u);
}

TEST_F(StoreTest, NamesAreUniqueWhileTheyLive) {
  Store store = Open();
  ASSERT_TRUE(store.Commit(TwoCards(), Asking(100, "a")));
  EXPECT_EQ(store.Commit(TwoCards(), Asking(100, "a")).error().code, Code::kAlreadyExists);
  EXPECT_EQ(store.Commit(TwoCards(), Asking(100))->slice.name, "sleep");
  EXPECT_EQ(store.Commit(TwoCards(), Asking(100))->slice.name, "sleep-2");
}

TEST_F(StoreTest, ADeadLaunchersSliceIsGivenBack) {
  ASSERT_EQ(InChild([this] { return Open().Commit(TwoCards(), Asking(9000, "gone")) ? 0 : 1; }), 0);
  Store store = Open();
  Result<Inventory> inventory = store.Read();
  ASSERT_TRUE(inventory);
  EXPECT_TRUE(inventory->live.empty());
  EXPECT_EQ(inventory->dead.size(), 1u);
  ASSERT_TRUE(store.Commit(TwoCards(), Asking(9000, "gone")));
  EXPECT_EQ(Entries().size(), 1u) << "the dead one was removed";
}

TEST_F(StoreTest, AnotherBootsSliceIsDeadWhateverItsPid) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_TRUE(record);
  record->boot_id = "another";
  ASSERT_TRUE(store.Update(*record));
  EXPECT_EQ(store.Read()->dead.size(), 1u);
}

TEST_F(StoreTest, APidNamespaceThatIsGoneTakesItsSlicesWithIt) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_TRUE(record);
  record->pid_namespace = 42;
  ASSERT_TRUE(store.Update(*record));
  bool sees_all = geteuid() == 0 && base::NamespaceInode(getpid(), "pid") == 0xEFFFFFFC;
  EXPECT_EQ(store.Read()->dead.size(), sees_all ? 1u : 0u)
      << "who does not see every process does not judge";
}

// The view of a slice, as far as it tells whose it is.
bool ShowPolicy(const std::string& policy) {
  const std::string inside = std::string(contract::kSliceDir) + "/policy";
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/run", "tmpfs", 0, nullptr) == 0 && mkdir(contract::kSliceDir, 0755) == 0 &&
         mount("none", contract::kSliceDir, "tmpfs", 0, nullptr) == 0 &&
         base::CreateWholeFile(inside, "", 1, 0644) &&
         mount(policy.c_str(), inside.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

class MountNamespace : public StoreTest, public testing::WithParamInterface<bool> {};

// The kernel gives the number of a namespace again: one that shows no policy is somebody else's.
TEST_P(MountNamespace, KeepsASliceAliveWhileItShowsItsPolicy) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "kept"));
  ASSERT_TRUE(record);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  pid_t child = fork();
  if (child == 0) {
    bool made = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (made && GetParam()) made = ShowPolicy(record->directory + "/policy");
    char answer = made ? '+' : '-';
    close(go[1]);
    _exit(write(ready[1], &answer, 1) == 1 && read(go[0], &answer, 1) == 0 ? 0 : 1);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  if (answer == '+') {
    record->launcher = {};
    record->mount_namespace = base::NamespaceInode(child, "mnt");
    ASSERT_TRUE(store.Update(*record));
    EXPECT_EQ(store.Find("kept").has_value(), GetParam());
  }
  close(go[1]);
  waitpid(child, nullptr, 0);
  if (answer != '+') GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_FALSE(store.Find("kept"));
}

TEST_F(StoreTest, AProcessWhoseFirstThreadHasEndedKeepsItsSlice) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "kept"));
  ASSERT_TRUE(record);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    bool made = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    made = made && ShowPolicy(record->directory + "/policy");
    const pid_t first = getpid();
    close(go[1]);
    std::thread([=] {
      while (base::ReadProcessStat(first)->state != 'Z') usleep(1000);
      char answer = made ? '+' : '-';
      _exit(write(ready[1], &answer, 1) == 1 && read(go[0], &answer, 1) == 0 ? 0 : 1);
    }).detach();
    syscall(SYS_exit, 0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  if (answer == '+') {
    record->launcher = {};
    record->mount_namespace = base::NamespaceInode(child, "mnt");
    EXPECT_NE(record->mount_namespace, 0u);
    ASSERT_TRUE(store.Update(*record));
    EXPECT_TRUE(store.Find("kept"));
  }
  close(go[1]);
  waitpid(child, nullptr, 0);
  if (answer != '+') GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_FALSE(store.Find("kept"));
}

INSTANTIATE_TEST_SUITE_P(Store, MountNamespace, testing::Bool());

TEST_F(StoreTest, AbandonedWorkIsRemovedAndWorkUnderWayIsNot) {
  Store store = Open();
  base::ProcessIdentity self = base::OwnIdentity();
  std::string mine = state_ + "/slices/.new." + std::to_string(self.pid) + "." +
                     std::to_string(self.start_ticks) + ".aa";
  std::string reused = state_ + "/slices/.dead." + std::to_string(self.pid) + ".1.bb";
  std::string odd = state_ + "/slices/.new.notes";
  for (const std::string& path : {mine, reused, odd}) ASSERT_TRUE(base::MakeDirectory(path, 0755));
  store.Reap();
  EXPECT_TRUE(base::IsDirectory(mine));
  EXPECT_FALSE(base::IsDirectory(reused));
  EXPECT_TRUE(base::IsDirectory(odd)) << "not ours to remove";
}

// A promise that cannot be read may be any: nothing is promised beside it, and the message names
// the directory.
class BrokenSlice : public StoreTest, public testing::WithParamInterface<int> {};

TEST_P(BrokenSlice, IsAOneLineErrorAndNothingIsLeftBehind) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_TRUE(record);
  const std::string json = record->directory + "/slice.json",
                    policy = record->directory + "/policy";
  Code code = Code::kDataLoss;
  switch (GetParam()) {
    case 0:
      ASSERT_TRUE(base::WriteFileAtomic(json, R"({"layout": 7, "surprise": true})", 0644));
      code = Code::kUnimplemented;
      break;
    case 1:
      ASSERT_TRUE(base::WriteFileAtomic(json, "{", 0644));
      break;
    case 2: {
      std::string bytes = *base::ReadFile(policy, 1 << 20);
      bytes[8] = 2;  // PolicyHeader.layout
      ASSERT_TRUE(base::WriteFileAtomic(policy, bytes, 0644));
      code = Code::kUnimplemented;
      break;
    }
    case 3:
      ASSERT_EQ(truncate(policy.c_str(), 100), 0);
      break;
    case 4:
      ASSERT_EQ(unlink(json.c_str()), 0);
      code = Code::kNotFound;
      break;
    case 5:
      ASSERT_TRUE(base::WriteFileAtomic(json, std::string(1 << 20, ' '), 0644));
      break;
    default:
      ASSERT_EQ(unlink(json.c_str()), 0);
      ASSERT_EQ(mkfifo(json.c_str(), 0644), 0);
  }
  Result<SliceRecord> second = store.Commit(TwoCards(), Asking(100));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, code) << second.error().message;
  EXPECT_NE(second.error().message.find("'" + record->directory + "'"), std::string::npos);
  EXPECT_EQ(second.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(Entries().size(), 1u);
  ASSERT_EQ(store.Read()->broken.size(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Forms, BrokenSlice, testing::Range(0, 7));

// A small tmpfs stands for a full disk, in a mount namespace of a child.
bool MountSmall(const std::string& at, const char* options, unsigned long flags) {
  if (unshare(CLONE_NEWNS) != 0) return false;
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("small", at.c_str(), "tmpfs", flags, options) == 0;
}

TEST_F(StoreTest, AFullDiskIsSaidAndLeavesNothing) {
  for (const char* size : {"size=8k", "size=64k", "size=1m", "size=6m"}) {
    SCOPED_TRACE(size);
    int answer = InChild([this, size] {
      if (!MountSmall(folder_, size, 0)) return kSkipped;
      Result<StateRoot> root = FindStateRoot(state_);
      if (!root) return root.error().code == Code::kUnavailable ? 0 : 1;
      Result<SliceRecord> record = Store(*root).Commit(TwoCards(), Asking(100));
      if (record || record.error().code != Code::kUnavailable) return 2;
      if (record.error().message.find("No space left on device") == std::string::npos) return 3;
      return Entries().empty() ? 0 : 4;
    });
    if (answer == kSkipped) GTEST_SKIP() << "may not mount";
    EXPECT_EQ(answer, 0);
  }
}

TEST_F(StoreTest, AReadOnlyStateDirectoryIsSaid) {
  int answer = InChild([this] {
    if (!MountSmall(folder_, "size=1m", MS_RDONLY)) return kSkipped;
    Result<StateRoot> root = FindStateRoot(state_);
    if (root || root.error().code != Code::kUnavailable) return 1;
    if (root.error().message.find("--state: '" + state_ + "'") == std::string::npos) return 2;
    return root.error().message.find("Read-only file system") == std::string::npos ? 3 : 0;
  });
  if (answer == kSkipped) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(answer, 0);
}

TEST_F(StoreTest, ARelativeStateDirectoryIsRefused) {
  Result<StateRoot> root = FindStateRoot("state");
  ASSERT_FALSE(root);
  EXPECT_NE(root.error().message.find("not an absolute path"), std::string::npos);
}

TEST_F(StoreTest, ConcurrentCommitsNeverPromiseMoreThanTheCards) {
  constexpr int kProcesses = 12;
  ASSERT_TRUE(FindStateRoot(state_));
  int go[2], done[2];
  ASSERT_EQ(pipe(go), 0);
  ASSERT_EQ(pipe(done), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    pid_t child = fork();
    if (child == 0) {
      close(go[1]);
      // 3,000 MiB fit three times on each of two cards.
      char answer = Open().Commit(TwoCards(), Asking(3000)) ? '+' : '-';
      char end;
      _exit(write(done[1], &answer, 1) == 1 && read(go[0], &end, 1) == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  int promised = 0;
  for (int i = 0; i < kProcesses; ++i) {
    char answer = 0;
    ASSERT_EQ(read(done[0], &answer, 1), 1);
    promised += answer == '+';
  }
  Result<Inventory> inventory = Open().Read();
  close(go[1]);
  for (pid_t child : children) waitpid(child, nullptr, 0);
  ASSERT_TRUE(inventory);
  EXPECT_EQ(promised, 6);
  EXPECT_EQ(inventory->live.size(), 6u);
  for (const model::Card& card : TwoCards().cards)
    EXPECT_LE(PromisedOn(*inventory, card.uuid), card.memory_bytes);
}

// SIGKILL at random instants of commit, update and remove: every state in between can be used by
// the next one.
TEST_F(StoreTest, SurvivesSigkillAtAnyInstant) {
  std::mt19937 random(11);
  Store store = Open();
  int killed = 0;
  for (int round = 0; round < 150; ++round) {
    pid_t child = fork();
    if (child == 0) {
      Store own = Open();
      for (int i = 0; i < 50; ++i) {
        Result<SliceRecord> record = own.Commit(TwoCards(), Asking(6000));
        if (!record) _exit(2);
        record->mount_namespace = 1;
        if (!own.Update(*record) || !own.Remove(*record)) _exit(3);
      }
      _exit(0);
    }
    usleep(random() % 6000);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
    Result<Inventory> inventory = store.Read();
    ASSERT_TRUE(inventory);
    ASSERT_TRUE(inventory->broken.empty()) << inventory->broken[0].error.message;
    EXPECT_TRUE(inventory->live.empty());
  }
  EXPECT_GT(killed, 0);
  Result<SliceRecord> last = store.Commit(TwoCards(), Asking(10'000));
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(Entries().size(), 1u) << "all that the killed ones left was removed";
}

}  // namespace
}  // namespace tessera::node
