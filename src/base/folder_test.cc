#include "base/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"

namespace tessera::base {
namespace {

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "folderXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    around_ = pattern;
    path_ = around_ + "/theirs";
    outside_ = around_ + "/outside";
    for (const std::string& folder : {path_, path_ + "/inner", outside_})
      ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
    ASSERT_TRUE(WriteFileAtomic(outside_ + "/file", "secret", 0644));
  }
  void TearDown() override { std::filesystem::remove_all(around_); }

  // What the folder's owner may do at any moment.
  void ReplaceByLink(const std::string& path, const std::string& to) {
    ASSERT_EQ(rename(path.c_str(), (path + ".was").c_str()), 0);
    ASSERT_EQ(symlink(to.c_str(), path.c_str()), 0);
  }

  std::string around_, path_, outside_;
};

TEST_F(FolderTest, ReadsAndWritesWhatIsInIt) {
  const Result<Folder> folder = Folder::Open(path_);
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->owner(), geteuid());
  ASSERT_TRUE(folder->WriteAtomic("file", "one", 0640));
  ASSERT_TRUE(folder->WriteAtomic("file", "two", 0640));
  EXPECT_EQ(*folder->Read("file", 100), "two");
  EXPECT_EQ(folder->Read("file", 2).error().code, Code::kDataLoss);
  EXPECT_EQ(*folder->List(), (std::vector<std::string>{"file", "inner"}));
  EXPECT_EQ(*folder->List(), (std::vector<std::string>{"file", "inner"})) << "a second time";
  for (const int flags : {O_RDONLY, O_RDWR, O_PATH}) EXPECT_TRUE(folder->OpenFile("file", flags));
  EXPECT_TRUE(folder->HasSub("inner"));
  EXPECT_FALSE(folder->HasSub("file"));
  EXPECT_EQ(folder->Read("none", 100).error().code, Code::kNotFound);
}

TEST_F(FolderTest, StaysWhereItWasOpened) {
  const Result<Folder> folder = Folder::Open(path_);
  ASSERT_TRUE(folder);
  ReplaceByLink(path_, outside_);
  EXPECT_EQ(folder->Read("file", 100).error().code, Code::kNotFound);
  ASSERT_TRUE(folder->WriteAtomic("file", "ours", 0644));
  EXPECT_EQ(*ReadFile(outside_ + "/file", 100), "secret");
  EXPECT_EQ(*ReadFile(path_ + ".was/file", 100), "ours");
  ASSERT_TRUE(folder->RemoveTree("file"));
  EXPECT_TRUE(ReadFile(outside_ + "/file", 100));
  EXPECT_FALSE(Folder::Open(path_)) << "a link is no folder";
}

TEST_F(FolderTest, FollowsNoLinkInIt) {
  const Result<Folder> folder = Folder::Open(path_);
  ASSERT_TRUE(folder);
  ReplaceByLink(path_ + "/inner", outside_);
  ASSERT_EQ(symlink((outside_ + "/file").c_str(), (path_ + "/link").c_str()), 0);
  EXPECT_FALSE(folder->Sub("inner"));
  EXPECT_FALSE(folder->HasSub("inner"));
  for (const int flags : {O_RDONLY, O_RDWR, O_PATH}) EXPECT_FALSE(folder->OpenFile("link", flags));
  // Written over: the link goes, what it names stays.
  ASSERT_TRUE(folder->WriteAtomic("link", "ours", 0644));
  EXPECT_EQ(*ReadFile(outside_ + "/file", 100), "secret");
  ASSERT_TRUE(folder->RemoveTree("inner"));
  EXPECT_TRUE(ReadFile(outside_ + "/file", 100)) << "removed the link, not what is behind it";
}

TEST_F(FolderTest, NamesLeadNowhereElse) {
  const Result<Folder> folder = Folder::Open(path_);
  ASSERT_TRUE(folder);
  for (const char* name :
       {"..", ".", "", "../outside/file", "/etc/passwd", "inner/../../outside"}) {
    EXPECT_FALSE(folder->OpenFile(name, O_RDONLY)) << name;
    EXPECT_FALSE(folder->Sub(name)) << name;
  }
}

TEST_F(FolderTest, AFileWithASecondNameIsNotTrusted) {
  const Result<Folder> folder = Folder::Open(path_);
  ASSERT_TRUE(folder);
  ASSERT_EQ(link((outside_ + "/file").c_str(), (path_ + "/file").c_str()), 0);
  EXPECT_EQ(folder->OpenFile("file", O_RDWR).error().code, Code::kDataLoss);
  ASSERT_EQ(mkfifo((path_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(folder->OpenFile("fifo", O_RDONLY).error().code, Code::kDataLoss);
}

// Its owner may have mounted something there that never answers.
TEST_F(FolderTest, StepsIntoNoOtherFileSystem) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(77);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(77);
    if (mount("t", (path_ + "/inner").c_str(), "tmpfs", 0, nullptr) != 0) _exit(77);
    if (!WriteFileAtomic(path_ + "/inner/file", "x", 0644)) _exit(1);
    const Result<Folder> folder = Folder::Open(path_);
    if (!folder || folder->Sub("inner") || folder->HasSub("inner")) _exit(2);
    if (folder->RemoveTree("inner")) _exit(3);
    _exit(ReadFile(path_ + "/inner/file", 100) ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tessera::base
