#include "node/mount_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/files.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

// As the launcher leaves it: 40 is the slice's folder, 41 its policy.
constexpr char kSlice[] =
    "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "30 27 0:21 / /run rw,nosuid - tmpfs tmpfs rw\n"
    "40 30 0:50 / /run/tessera ro,nosuid - tmpfs tessera rw\n"
    "41 40 0:21 /tessera/slices/ab12/policy /run/tessera/policy ro - tmpfs tmpfs rw\n"
    "42 40 0:21 /tessera/slices/ab12/ledger /run/tessera/ledger rw - tmpfs tmpfs rw\n";
constexpr char kPolicyPlace[] = "0:21 /tessera/slices/ab12/policy";

TEST(MountView, ASliceSeesItsPolicy) {
  const SeenPolicy seen = SeenIn(kSlice);
  EXPECT_EQ(seen.place, kPolicyPlace);
  EXPECT_EQ(seen.mounted, std::vector<Place>{kPolicyPlace});
  EXPECT_TRUE(seen.Shows(kPolicyPlace));
  EXPECT_FALSE(seen.Shows("0:21 /tessera/slices/cd34/policy"));
}

TEST(MountView, WhatIsMountedOverItIsWhatIsSeen) {
  // A file system over the folder hides the policy; the slice is known all the same.
  const SeenPolicy covered =
      SeenIn(std::string(kSlice) + "50 40 0:60 / /run/tessera rw - fuse fuse rw,user_id=0\n");
  EXPECT_EQ(covered.place, "0:60 /policy");
  EXPECT_TRUE(covered.Shows(kPolicyPlace));
  // Another policy over the policy: two, and the upper one counts.
  const SeenPolicy replaced =
      SeenIn(std::string(kSlice) + "50 41 254:0 /tmp/policy /run/tessera/policy rw - ext4 a rw\n");
  EXPECT_EQ(replaced.place, "254:0 /tmp/policy");
  EXPECT_FALSE(replaced.Shows(kPolicyPlace));
  // Over /run: nothing of ours is in view.
  const SeenPolicy other = SeenIn(std::string(kSlice) + "50 30 0:61 / /run rw - tmpfs t rw\n");
  EXPECT_EQ(other.place, std::nullopt);
  EXPECT_TRUE(other.Shows(kPolicyPlace));
}

TEST(MountView, AnotherRootDirectoryListsItsOwnMountsOnly) {
  // After chroot into a plain folder no line stands for "/".
  EXPECT_EQ(SeenIn("41 40 0:21 /a/policy /run/tessera/policy ro - tmpfs tmpfs rw\n").place,
            "0:21 /a/policy");
  EXPECT_EQ(SeenIn("").place, std::nullopt);
  EXPECT_TRUE(SeenIn("").readable);
}

TEST(MountView, OutsideOfSlicesNothingIsSeen) {
  EXPECT_EQ(
      SeenIn("27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:21 / /run rw - tmpfs t rw\n").place,
      std::nullopt);
}

TEST(MountView, DamagedLinesAndCirclesEnd) {
  for (const char* text : {"\n\n", "1 2 3", "1 1 0:1 / / rw - tmpfs t rw\n",
                           "1 2 0:1 / / rw - a b\n2 1 0:1 / / rw - a b\n", " - - - - - \n"}) {
    EXPECT_EQ(SeenIn(text).place, std::nullopt) << text;
  }
}

TEST(MountView, NamesAreComparedAsTheKernelWritesThem) {
  const std::string text =
      "27 1 254:0 / / rw - ext4 a rw\n41 27 254:0 /a\\040b/policy /run/tessera/policy ro - ext4 a "
      "rw\n";
  EXPECT_EQ(SeenIn(text).place, "254:0 /a\\040b/policy");
}

TEST(MountView, AFileSystemThatNamesNoPathSaysNothing) {
  EXPECT_EQ(SeenIn("41 1 0:70 / /run/tessera/policy ro - nfs4 server rw\n").place, std::nullopt);
}

class MountViewOfAProcess : public ScratchTest {};

// The same text for the file outside and for its bind inside, with a name that has to be escaped.
TEST_F(MountViewOfAProcess, IsTheSameInsideAndOutside) {
  const std::string folder = folder_ + "/with blank";
  ASSERT_TRUE(base::MakeDirectory(folder, 0755));
  const std::string file = folder + "/policy";
  ASSERT_TRUE(base::WriteFileAtomic(file, "x", 0644));
  const base::Fd fd(open(file.c_str(), O_PATH));
  const std::optional<Place> outside = PlaceOf(fd.get());
  ASSERT_TRUE(outside);
  EXPECT_NE(outside->find("\\040"), std::string::npos);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool made = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      mount("t", "/run", "tmpfs", 0, nullptr) == 0 &&
                      mkdir("/run/tessera", 0755) == 0 &&
                      mount("t", "/run/tessera", "tmpfs", 0, nullptr) == 0 &&
                      base::CreateWholeFile("/run/tessera/policy", "", 1, 0644) &&
                      mount(file.c_str(), "/run/tessera/policy", nullptr, MS_BIND, nullptr) == 0;
    char answer = made ? '+' : '-';
    close(go[1]);
    _exit(write(ready[1], &answer, 1) == 1 && read(go[0], &answer, 1) == 0 ? 0 : 1);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  const SeenPolicy seen = PolicySeenBy(child);
  close(go[1]);
  waitpid(child, nullptr, 0);
  if (answer != '+') GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_EQ(seen.place, outside);
  EXPECT_FALSE(PolicySeenBy(child).readable) << "it has ended";
}

}  // namespace
}  // namespace tessera::node
