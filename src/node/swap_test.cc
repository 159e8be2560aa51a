// A slice directory is its owner's, who may put a link in its place while another user's tessera is
// at work: nothing outside is read, written or removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "contract/names.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

class SwapTest : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    outside_ = folder_ + "/outside";
  }

  // Moves the slice out of the state directory and leaves a link: what is behind it is a whole
  // slice.
  void SwapForLink(const SliceRecord& record) {
    ASSERT_EQ(rename(record.directory.c_str(), outside_.c_str()), 0);
    ASSERT_EQ(symlink(outside_.c_str(), record.directory.c_str()), 0);
  }

  std::string outside_;
};

TEST_F(SwapTest, ALinkInThePlaceOfASliceIsNoSlice) {
  Store store = Open();
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "swapped"));
  ASSERT_TRUE(record);
  SwapForLink(*record);
  const Result<Inventory> inventory = store.Read();
  ASSERT_TRUE(inventory);
  EXPECT_TRUE(inventory->live.empty());
  ASSERT_EQ(inventory->broken.size(), 1u) << "what it was promised is unknown";
  EXPECT_FALSE(OpenSlice(*record));
  EXPECT_FALSE(PlaceOfPolicy(*record));
}

TEST_F(SwapTest, NothingIsWrittenThroughIt) {
  Store store = Open();
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "swapped"));
  ASSERT_TRUE(record);
  SwapForLink(*record);
  const std::string before = *base::ReadFile(outside_ + "/slice.json", 1 << 20);
  SliceRecord changed = *record;
  changed.command = "changed";
  EXPECT_FALSE(store.Update(changed));
  EXPECT_EQ(*base::ReadFile(outside_ + "/slice.json", 1 << 20), before);
  Change change;
  change.memory_bytes = 50 * model::kMib;
  EXPECT_FALSE(store.SetLimits(TwoCards(), "swapped", change));
  EXPECT_EQ(ReadPolicy(outside_ + "/policy")->cards[0].limit_bytes, 100 * model::kMib);
}

TEST_F(SwapTest, NothingIsRemovedThroughIt) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "swapped"));
  ASSERT_TRUE(record);
  SwapForLink(*record);
  ASSERT_TRUE(store.Remove(*record));
  EXPECT_TRUE(base::ReadFile(outside_ + "/slice.json", 1 << 20)) << "the link went, not the slice";
  EXPECT_TRUE(Entries().empty());
}

TEST_F(SwapTest, FilesOfASliceMayBeNoLinksEither) {
  Store store = Open();
  const Result<SliceRecord> record = store.Commit(TwoCards(), Asking(100, "swapped"));
  ASSERT_TRUE(record);
  const std::string policy = record->directory + "/" + contract::kPolicyFile;
  ASSERT_EQ(rename(policy.c_str(), outside_.c_str()), 0);
  ASSERT_EQ(symlink(outside_.c_str(), policy.c_str()), 0);
  EXPECT_FALSE(ChangePolicy(*OpenSlice(*record), {{1, 1, 1}}));
  EXPECT_EQ(ReadPolicy(outside_)->cards[0].limit_bytes, 100 * model::kMib);
  EXPECT_FALSE(ReadPolicy(*OpenSlice(*record)));
}

TEST_F(SwapTest, AFolderOfSlicesThatIsAStrangersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs users of its own";
  ASSERT_TRUE(base::MakeDirectory(state_, 01777));
  ASSERT_TRUE(base::MakeDirectory(state_ + "/slices", 0777));
  ASSERT_EQ(chown((state_ + "/slices").c_str(), 54321, 54321), 0);
  const Result<StateRoot> root = FindStateRoot(state_);
  ASSERT_FALSE(root) << "that user could move the slices of others";
  EXPECT_NE(root.error().message.find("belongs to user 54321"), std::string::npos)
      << root.error().message;
}

}  // namespace
}  // namespace tessera::node
