#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

namespace tessera::base {
namespace {

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "filesXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(FilesTest, AtomicWriteReplacesAndLeavesNothingBeside) {
  ASSERT_TRUE(WriteFileAtomic(dir_ + "/a", "one", 0644));
  ASSERT_TRUE(WriteFileAtomic(dir_ + "/a", "two", 0600));
  EXPECT_EQ(*ReadFile(dir_ + "/a", 10), "two");
  EXPECT_EQ(*ListDirectory(dir_), std::vector<std::string>{"a"});
}

TEST_F(FilesTest, ReadRefusesLongFilesFifosAndDirectories) {
  ASSERT_TRUE(WriteFileAtomic(dir_ + "/a", "12345", 0644));
  EXPECT_EQ(ReadFile(dir_ + "/a", 4).error().code, Code::kDataLoss);
  ASSERT_EQ(mkfifo((dir_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(dir_ + "/fifo", 4).error().code, Code::kDataLoss);
  EXPECT_FALSE(ReadFile(dir_, 4));
  EXPECT_EQ(ReadFile(dir_ + "/none", 4).error().code, Code::kNotFound);
}

TEST_F(FilesTest, WholeFileHasItsBlocks) {
  ASSERT_TRUE(CreateWholeFile(dir_ + "/p", "head", 8192, 0644));
  struct stat info{};
  ASSERT_EQ(stat((dir_ + "/p").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 8192);
  EXPECT_GE(info.st_blocks * 512, 8192);
  EXPECT_FALSE(CreateWholeFile(dir_ + "/p", "head", 8192, 0644)) << "must not overwrite";
}

TEST_F(FilesTest, RemoveTreeDoesNotFollowLinks) {
  ASSERT_TRUE(MakeDirectory(dir_ + "/keep", 0755));
  ASSERT_TRUE(WriteFileAtomic(dir_ + "/keep/file", "x", 0644));
  ASSERT_TRUE(MakeDirectory(dir_ + "/gone", 0755));
  ASSERT_EQ(symlink((dir_ + "/keep").c_str(), (dir_ + "/gone/link").c_str()), 0);
  ASSERT_TRUE(RemoveTree(dir_ + "/gone"));
  EXPECT_FALSE(IsDirectory(dir_ + "/gone"));
  EXPECT_TRUE(ReadFile(dir_ + "/keep/file", 10));
  EXPECT_TRUE(RemoveTree(dir_ + "/gone"));
}

}  // namespace
}  // namespace tessera::base
