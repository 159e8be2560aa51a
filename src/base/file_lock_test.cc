#include "base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera::base {
namespace {

class FileLockTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "lockXXXXXX";
    const Fd made(mkstemp(path_.data()));
    ASSERT_TRUE(made.valid());
  }
  void TearDown() override { unlink(path_.c_str()); }

  Result<FileLock> Acquire(std::int64_t wait_ns, Clock& clock) {
    return FileLock::Acquire(Fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC)), path_, wait_ns, clock);
  }
  std::string path_;
};

TEST_F(FileLockTest, WaitsBoundedAndNamesFileAndHolder) {
  const Result<FileLock> held = Acquire(0, RealClock());
  ASSERT_TRUE(held);
  FakeClock clock;
  const Result<FileLock> second = Acquire(1'000'000'000, clock);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(second.error().message, path_ + ": held for more than 1000 ms by pid " +
                                        std::to_string(getpid()) + " (base_test) of user " +
                                        std::to_string(getuid()));
}

TEST_F(FileLockTest, OfAKilledProcessIsFree) {
  const pid_t child = fork();
  if (child == 0) {
    const Result<FileLock> held = Acquire(0, RealClock());
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Acquire(0, RealClock()));
}

}  // namespace
}  // namespace tessera::base
