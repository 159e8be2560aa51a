// What another user puts into STATE/slices, or says there of processes that are not theirs.
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/files.h"
#include "contract/names.h"
#include "node/store.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

using StoreStranger = ScratchTest;

constexpr uid_t kStranger = 12345;

TEST_F(StoreStranger, ManyEntriesOfOneUserHideNobodysSlices) {
  Store store = Open();
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "mine"));
  ASSERT_TRUE(record);
  const std::string slices = state_ + "/slices/";
  for (int i = 0; i < 4200; ++i)
    ASSERT_EQ(symlink("nowhere", (slices + ".x" + std::to_string(i)).c_str()), 0);
  EXPECT_TRUE(store.Find("mine"));
  EXPECT_TRUE(store.Read()->broken.empty()) << "work names are no slices";
  if (geteuid() != 0) GTEST_SKIP() << "plays another user";
  for (int i = 0; i < 1200; ++i) {
    const std::string path = slices + "-" + std::to_string(i);  // sorts before every id
    ASSERT_EQ(symlink("nowhere", path.c_str()), 0);
    ASSERT_EQ(lchown(path.c_str(), kStranger, kStranger), 0);
  }
  const Result<Inventory> inventory = store.Read();
  ASSERT_TRUE(inventory) << inventory.error().message;
  EXPECT_EQ(inventory->live.size(), 1u);
  ASSERT_EQ(inventory->broken.size(), 10u);
  EXPECT_EQ(inventory->broken[8].error.message, "1016 more entries of user 12345 cannot be read");
  EXPECT_EQ(inventory->broken[9].error.message,
            "1200 entries of user 12345, of which 1024 are looked at");
  Change change;
  change.memory_bytes = 50 * model::kMib;
  EXPECT_TRUE(store.SetLimits(TwoCards(), "mine", change)) << "giving back is always allowed";
  change.memory_bytes = 60 * model::kMib;
  EXPECT_FALSE(store.SetLimits(TwoCards(), "mine", change));
}

TEST_F(StoreStranger, NamesThatOthersTookAreFree) {
  if (geteuid() != 0) GTEST_SKIP() << "plays another user";
  Store store = Open();
  chmod(folder_.c_str(), 0755);
  // A slice of another user, who is this process for a moment.
  ASSERT_EQ(seteuid(kStranger), 0);
  const Result<SliceRecord> theirs = store.Commit(TwoCards(), Asking(100, "chat"));
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(theirs) << theirs.error().message;
  SliceRecord record = *theirs;
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kStranger, kStranger, kStranger) != 0) _exit(1);
    _exit(pause());
  }
  for (int i = 0; i < 1000 && base::RealUser(child) != kStranger; ++i) usleep(10'000);
  record.launcher = base::ReadProcessStat(child)->identity;
  ASSERT_TRUE(store.Update(record));
  ASSERT_EQ(store.Read()->live.size(), 1u);
  const Result<SliceRecord> mine = store.Commit(TwoCards(), Asking(100, "chat"));
  EXPECT_TRUE(mine) << mine.error().message;
  EXPECT_EQ(store.Find("chat")->owner, 0u);
  EXPECT_EQ(store.Commit(TwoCards(), Asking(100, "chat")).error().code, Code::kAlreadyExists);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(StoreStranger, AnotherUsersProcessIsNoLauncher) {
  if (geteuid() != 0) GTEST_SKIP() << "plays another user";
  Store store = Open();
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_TRUE(record);
  EXPECT_EQ(store.Read()->live.size(), 1u) << "this process";
  // The record of another user that names this process, or a pid namespace without one of its own.
  ASSERT_EQ(chown(record->directory.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(store.Read()->dead.size(), 1u);
  SliceRecord elsewhere = *record;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(kSkipped);
    const pid_t inner = fork();
    if (inner == 0) _exit(pause());
    elsewhere.pid_namespace = base::NamespaceInode(inner, "pid");
    const bool told = store.Update(elsewhere).has_value();
    const bool sees_all = base::NamespaceInode(getpid(), "pid") == 0xEFFFFFFC;
    const bool right = store.Read()->dead.size() == (sees_all ? 1u : 0u);
    kill(inner, SIGKILL);
    waitpid(inner, nullptr, 0);
    _exit(told && right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kSkipped) << status;
}

// A process of `user` whose environment names the slice.
pid_t StartWithVariable(const std::string& directory, uid_t user) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::string variable = std::string(contract::kEnvSliceDir) + "=" + directory;
  if (setresuid(user, user, user) != 0) _exit(1);
  const char* const environment[] = {variable.c_str(), nullptr};
  execle("/bin/sleep", "sleep", "60", nullptr, environment);
  _exit(1);
}

TEST_F(StoreStranger, ADirectoryNamedInAnothersEnvironmentKeepsNoPromise) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_TRUE(record);
  record->launcher = {};
  record->fencing = Fencing::kEnvironment;
  ASSERT_TRUE(store.Update(*record));
  const auto lives_beside = [&](uid_t user) {
    const pid_t child = StartWithVariable(record->directory, user);
    const std::string comm = "/proc/" + std::to_string(child) + "/comm";
    for (int i = 0; i < 1000 && base::ReadKernelFile(comm, 64).value_or("") != "sleep\n"; ++i)
      usleep(10'000);
    const bool lives = store.Read()->live.size() == 1;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return lives;
  };
  EXPECT_TRUE(lives_beside(geteuid()));
  if (geteuid() == 0) {
    EXPECT_FALSE(lives_beside(kStranger));
  }
  EXPECT_EQ(store.Read()->dead.size(), 1u);
}

}  // namespace
}  // namespace tessera::node
