// A slice from HAMi's variables: strictly read, and a ledger that no other user can slip in.
#include "slice/environment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::fence {
namespace {

class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tessera-environment-test-XXXXXX";
    directory_ = mkdtemp(name);
    Set("CUDA_DEVICE_MEMORY_SHARED_CACHE", Cache().c_str());
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    unlink(Ledger().c_str());
    RemoveFallbacks();
    rmdir(directory_.c_str());
  }
  void Set(const std::string& name, const char* value) {
    setenv(name.c_str(), value, 1);
    set_.push_back(name);
  }
  Mode Attach() {
    slice_ = Slice();
    return AttachEnvironment(slice_);
  }
  // The ledgers under /tmp that this test has mapped.
  static void RemoveFallbacks() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const std::size_t at = line.find("/tmp/.tessera-ledger-");
      if (at != std::string::npos && line.find(" (deleted)") == std::string::npos)
        unlink(line.c_str() + at);
    }
  }
  std::string Cache() const { return directory_ + "/shared.cache"; }
  std::string Ledger() const { return Cache() + ".tessera-" + std::to_string(geteuid()); }

  Slice slice_;
  std::string directory_;
  std::vector<std::string> set_;
};

TEST_F(Environment, WithoutLimitsThereIsNoSliceAndNoFile) {
  EXPECT_EQ(Attach(), Mode::kInert);
  EXPECT_NE(access(Ledger().c_str(), F_OK), 0);
}

TEST_F(Environment, LimitsByIndexWinOverTheGeneralOne) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "1000m");
  Set("CUDA_DEVICE_MEMORY_LIMIT_2", "3g");
  Set("CUDA_DEVICE_SM_LIMIT", "30");
  Set("CUDA_TASK_PRIORITY", "0");
  Set("GPU_CORE_UTILIZATION_POLICY", "force");
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  EXPECT_TRUE(slice_.from_environment);
  EXPECT_EQ(slice_.policy.LimitBytes(0), 1000ull << 20);
  EXPECT_EQ(slice_.policy.LimitBytes(2), 3ull << 30);
  EXPECT_EQ(slice_.policy.Card(0).compute_percent, 30u);
  EXPECT_EQ(slice_.policy.Card(0).priority, 0u);
  EXPECT_EQ(slice_.policy.header().core_policy, 1u);
  EXPECT_EQ(access(Ledger().c_str(), F_OK), 0);
  struct stat s;
  ASSERT_EQ(stat(Ledger().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0600u);
}

TEST_F(Environment, AMalformedValueIsNamedWithWhatIsLegal) {
  const std::pair<const char*, const char*> cases[] = {
      {"CUDA_DEVICE_MEMORY_LIMIT", "2GB"},   {"CUDA_DEVICE_MEMORY_LIMIT_0", "1.5g"},
      {"CUDA_DEVICE_MEMORY_LIMIT_15", "-1"}, {"CUDA_DEVICE_MEMORY_LIMIT", ""},
      {"CUDA_DEVICE_MEMORY_LIMIT", "0"},     {"CUDA_DEVICE_SM_LIMIT", "30%"},
      {"CUDA_DEVICE_SM_LIMIT_1", "101"},
  };
  for (const auto& [name, value] : cases) {
    Set(name, value);
    EXPECT_EQ(Attach(), Mode::kRefused) << name << "=" << value;
    const std::string problem = slice_.problem;
    EXPECT_NE(problem.find(std::string(name) + "='" + value + "'"), std::string::npos) << problem;
    EXPECT_NE(problem.find("legal is"), std::string::npos) << problem;
    unsetenv(name);
  }
  Set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
  for (const auto& [name, value] :
       {std::pair{"CUDA_TASK_PRIORITY", "5"}, std::pair{"GPU_CORE_UTILIZATION_POLICY", "strong"},
        std::pair{"CUDA_DEVICE_MEMORY_SHARED_CACHE", ""},
        std::pair{"CUDA_DEVICE_MEMORY_SHARED_CACHE", "relative/path.cache"}}) {
    Set(name, value);
    EXPECT_EQ(Attach(), Mode::kRefused) << name << "=" << value;
    const std::string problem = slice_.problem;
    EXPECT_NE(problem.find(std::string(name) + "='" + value + "'"), std::string::npos) << problem;
    EXPECT_NE(problem.find("legal is"), std::string::npos) << problem;
    unsetenv(name);
  }
  Set("CUDA_DEVICE_MEMORY_SHARED_CACHE", ("/" + std::string(480, 'x')).c_str());
  EXPECT_EQ(Attach(), Mode::kRefused);
  EXPECT_NE(std::string(slice_.problem).find("up to 480 bytes"), std::string::npos);
}

TEST_F(Environment, ACacheThatCannotBeThereIsElsewhereAndTheLimitHolds) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "125m");
  for (const char* value : {"/proc/nothing/x", "/dev/null/x"}) {
    Set("CUDA_DEVICE_MEMORY_SHARED_CACHE", value);
    ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
    EXPECT_EQ(slice_.policy.LimitBytes(0), 125ull << 20);
  }
}

TEST_F(Environment, ProcessesOfOneUserShareTheLedger) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
  ASSERT_EQ(Attach(), Mode::kFenced);
  contract::LedgerCard& first = slice_.ledger.Card(0);
  contract::Store(first.denied_count, std::uint64_t{7});
  ASSERT_EQ(Attach(), Mode::kFenced);
  EXPECT_EQ(contract::Load(slice_.ledger.Card(0).denied_count), 7u);
}

TEST_F(Environment, AFileThatOthersMayWriteIsNotUsed) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "123m");
  const int file = open(Ledger().c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(file, sizeof(contract::LedgerFile)), 0);
  fchmod(file, 0666);
  close(file);
  // Falls back to the user's own file under /tmp, and never writes to the other one.
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  struct stat s;
  ASSERT_EQ(stat(Ledger().c_str(), &s), 0);
  EXPECT_EQ(s.st_blocks, 0);
}

TEST_F(Environment, NamesThatOthersTookAreLeftToThemAndAllProcessesMeet) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "126m");
  Set("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/proc/nothing/x");
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  std::string taken = slice_.ledger_path;
  if (taken.starts_with("/run/user/")) GTEST_SKIP() << "has a folder of its own";
  unlink(taken.c_str());
  // Not of this user, or not a file: what a stranger may have put there.
  ASSERT_EQ(mkdir(taken.c_str(), 0700), 0);
  ASSERT_EQ(symlink("/dev/null", (taken + ".2").c_str()), 0);
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  EXPECT_EQ(std::string(slice_.ledger_path), taken + ".3");
  contract::Store(slice_.ledger.Card(0).denied_count, std::uint64_t{7});
  rmdir(taken.c_str());
  unlink((taken + ".2").c_str());
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  EXPECT_EQ(contract::Load(slice_.ledger.Card(0).denied_count), 7u) << "though a better is free";
}

TEST_F(Environment, ASymbolicLinkIsNotFollowed) {
  Set("CUDA_DEVICE_MEMORY_LIMIT", "124m");
  const std::string victim = directory_ + "/victim";
  const int file = open(victim.c_str(), O_RDWR | O_CREAT, 0600);
  close(file);
  ASSERT_EQ(symlink(victim.c_str(), Ledger().c_str()), 0);
  ASSERT_EQ(Attach(), Mode::kFenced) << slice_.problem;
  struct stat s;
  ASSERT_EQ(stat(victim.c_str(), &s), 0);
  EXPECT_EQ(s.st_size, 0);
  unlink(victim.c_str());
}

}  // namespace
}  // namespace tessera::fence
