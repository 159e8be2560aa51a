#include "node/state_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

class StateLockTest : public ScratchTest {
 protected:
  struct stat Lock() {
    struct stat info{};
    EXPECT_EQ(lstat((state_ + "/lock").c_str(), &info), 0);
    return info;
  }
  mode_t Mode() { return Lock().st_mode & 07777; }
};

TEST_F(StateLockTest, IsWaitedForBoundedAndItsHolderNamed) {
  ASSERT_TRUE(FindStateRoot(state_));
  const Result<base::FileLock> held = AcquireStateLock(state_, base::RealClock());
  ASSERT_TRUE(held) << held.error().message;
  base::FakeClock clock;
  Store store({state_, true, ""}, clock);
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100));
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(record.error().message,
            "state directory: " + state_ + "/lock: held for more than 5000 ms by pid " +
                std::to_string(getpid()) + " (node_test) of user " + std::to_string(getuid()));
}

TEST_F(StateLockTest, IsAsOpenAsThePromisesAre) {
  ASSERT_TRUE(FindStateRoot(state_));
  ASSERT_EQ(chmod((state_ + "/slices").c_str(), 01777), 0);
  ASSERT_TRUE(AcquireStateLock(state_, base::RealClock()));
  EXPECT_EQ(Mode(), 0644u) << "all users promise here";
  // An older program left it open: who may not promise shall not hold it.
  ASSERT_EQ(chmod((state_ + "/slices").c_str(), 0755), 0);
  ASSERT_TRUE(AcquireStateLock(state_, base::RealClock()));
  EXPECT_EQ(Mode(), 0600u);
}

TEST_F(StateLockTest, StandsBeforeOthersMayWriteThere) {
  ASSERT_TRUE(FindStateRoot(state_));
  EXPECT_EQ(Lock().st_uid, geteuid());
}

TEST_F(StateLockTest, OfRootInAnotherUsersStateStaysThatUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs users of its own";
  for (const std::string& folder : {state_, state_ + "/slices"}) {
    ASSERT_TRUE(base::MakeDirectory(folder, 0755));
    ASSERT_EQ(chown(folder.c_str(), 54321, 54321), 0);
  }
  ASSERT_TRUE(AcquireStateLock(state_, base::RealClock()));
  EXPECT_EQ(Lock().st_uid, 54321u);
  EXPECT_EQ(Mode(), 0600u);
  EXPECT_EQ(InChild([&] {
              if (setgid(54321) != 0 || setuid(54321) != 0) return 1;
              return AcquireStateLock(state_, base::RealClock()) ? 0 : 2;
            }),
            0);
}

TEST_F(StateLockTest, AStrangersIsRefusedAndRootReplacesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs users of its own";
  ASSERT_TRUE(FindStateRoot(state_));
  const std::string lock = state_ + "/lock";
  ASSERT_EQ(chmod((state_ + "/slices").c_str(), 01777), 0);
  ASSERT_EQ(chown(lock.c_str(), 54321, 54321), 0);
  ASSERT_EQ(chmod(lock.c_str(), 0644), 0);
  EXPECT_EQ(InChild([&] {
              if (setgid(54322) != 0 || setuid(54322) != 0) return 1;
              const Result<base::FileLock> got = AcquireStateLock(state_, base::RealClock());
              return !got && got.error().code == Code::kPermissionDenied ? 0 : 2;
            }),
            0);
  ASSERT_TRUE(AcquireStateLock(state_, base::RealClock()));
  EXPECT_EQ(Lock().st_uid, 0u);
}

}  // namespace
}  // namespace tessera::node
