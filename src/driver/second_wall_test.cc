#include "driver/second_wall.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "driver/testing/fake_nvml.h"

namespace tessera::driver {
namespace {

TEST(SecondWall, IsOffForEachMissingThingAndSaysWhich) {
  testing::FakeNvml nvml;
  const WallHost good{true, "/sys/fs/cgroup"};
  EXPECT_EQ(ProbeSecondWall(nullptr, good).reason, "no driver");
  EXPECT_EQ(ProbeSecondWall(&nvml, good).reason,
            "driver 580.95.05 has no memory limit per cgroup (R615 has)");
  nvml.driver->memory_limits = true;
  EXPECT_EQ(ProbeSecondWall(&nvml, {true, ""}).reason, "no cgroup v2 tree is mounted");
  EXPECT_EQ(ProbeSecondWall(&nvml, {false, "/sys/fs/cgroup"}).reason,
            "only root may set the driver's memory limit");
  EXPECT_TRUE(ProbeSecondWall(&nvml, good).available);
  nvml.get_limit_error = {Code::kUnimplemented, "Not Supported"};
  EXPECT_EQ(ProbeSecondWall(&nvml, good).reason,
            "driver 580.95.05 has no memory limit per cgroup (R615 has)")
      << "a new library on an old driver";
  nvml.driver = Fail(Code::kDeadlineExceeded, "driver: no answer in time");
  EXPECT_FALSE(ProbeSecondWall(&nvml, good).available);
}

class OnDirectory : public ::testing::Test {
 protected:
  OnDirectory() {
    root_ = ::testing::TempDir() + "/wall-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    nvml_.driver->memory_limits = true;
    probe_ = {true, "", root_};
  }
  std::string root_;
  testing::FakeNvml nvml_;
  SecondWallProbe probe_;
};

TEST_F(OnDirectory, LimitsTheSlicesOwnCgroupAndTakesItAway) {
  const WallCard cards[] = {{0, 8000}, {1, 4000}};
  const Result<SecondWall> wall = RaiseSecondWall(nvml_, probe_, "chat-1", cards);
  ASSERT_TRUE(wall);
  EXPECT_EQ(wall->cgroup(), root_ + "/tessera/chat-1");
  EXPECT_EQ((nvml_.limits[{0, wall->cgroup()}]), 8000u);
  EXPECT_EQ((nvml_.limits[{1, wall->cgroup()}]), 4000u);
  EXPECT_TRUE(wall->SetLimit(nvml_, {0, 9000}));
  EXPECT_EQ((nvml_.limits[{0, wall->cgroup()}]), 9000u);
  EXPECT_TRUE(SecondWall::Of(root_, "chat-1").Lower(&nvml_, cards));
  EXPECT_EQ((nvml_.limits[{0, wall->cgroup()}]), kNoMemoryLimit);
  EXPECT_NE(access(wall->cgroup().c_str(), F_OK), 0);
  EXPECT_TRUE(wall->Lower()) << "twice is no error";
}

TEST_F(OnDirectory, AFailedLimitLeavesNothingBehind) {
  nvml_.set_limit_error = {Code::kPermissionDenied, "Insufficient Permissions"};
  const WallCard cards[] = {{0, 8000}};
  const Result<SecondWall> wall = RaiseSecondWall(nvml_, probe_, "chat-1", cards);
  ASSERT_FALSE(wall);
  EXPECT_EQ(wall.error().message, "second wall: Insufficient Permissions");
  EXPECT_NE(access((root_ + "/tessera/chat-1").c_str(), F_OK), 0);
}

TEST_F(OnDirectory, AnOccupiedWallIsNotLowered) {
  const Result<SecondWall> wall = RaiseSecondWall(nvml_, probe_, "chat-1", {});
  ASSERT_TRUE(wall);
  std::ofstream(wall->cgroup() + "/busy") << "x";
  EXPECT_EQ(wall->Lower().error().code, Code::kFailedPrecondition);
}

// With the kernel's real cgroup v2 where this test may write there.
TEST(SecondWallOnKernel, AProcessAndItsChildrenAreInTheCgroup) {
  const WallHost host = HostForSecondWall();
  if (!host.root || host.cgroup2.empty() || access(host.cgroup2.c_str(), W_OK) != 0) {
    GTEST_SKIP() << "needs root and a writable cgroup v2 tree";
  }
  testing::FakeNvml nvml;
  nvml.driver->memory_limits = true;
  const std::string id = "wall-test-" + std::to_string(getpid());
  const Result<SecondWall> wall = RaiseSecondWall(nvml, ProbeSecondWall(&nvml, host), id, {});
  ASSERT_TRUE(wall) << wall.error().message;
  std::string seen = ::testing::TempDir() + "/" + id;
  const pid_t child = fork();
  if (child == 0) {
    if (!wall->Enter(getpid())) _exit(1);
    _exit(system(("grep '^0::' /proc/self/cgroup > " + seen).c_str()) == 0 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::string line;
  std::getline(std::ifstream(seen), line);
  EXPECT_TRUE(line.ends_with("/tessera/" + id)) << line;
  EXPECT_TRUE(wall->Lower());
  unlink(seen.c_str());
}

}  // namespace
}  // namespace tessera::driver
