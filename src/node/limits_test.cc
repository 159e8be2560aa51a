#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "base/files.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

using LimitsTest = ScratchTest;

Change Memory(std::uint64_t mib) {
  Change change;
  change.memory_bytes = mib * model::kMib;
  return change;
}

TEST_F(LimitsTest, GrowsAndShrinksInPolicyAndPromise) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(4000, "chat"));
  ASSERT_TRUE(record);
  for (std::uint64_t mib : {10'000u, 1u, 5000u}) {
    Result<Changed> changed = store.SetLimits(TwoCards(), "chat", Memory(mib));
    ASSERT_TRUE(changed) << changed.error().message;
    EXPECT_EQ(store.Find("chat")->slice.cards[0].memory_bytes, mib * model::kMib);
    EXPECT_EQ(ReadPolicy(record->directory + "/policy")->cards[0].limit_bytes, mib * model::kMib);
    EXPECT_EQ(changed->held_bytes, std::vector<std::uint64_t>{0});
  }
  EXPECT_EQ(ReadPolicy(record->directory + "/policy")->generation, 4u);
}

TEST_F(LimitsTest, CoresAndPriorityAreWrittenToo) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(4000, "chat"));
  ASSERT_TRUE(record);
  Change change;
  change.cores = 30;
  change.priority = model::Priority::kHigh;
  ASSERT_TRUE(store.SetLimits(TwoCards(), "chat", change));
  Result<PolicyView> policy = ReadPolicy(record->directory + "/policy");
  EXPECT_EQ(policy->cards[0].compute_percent, 30u);
  EXPECT_EQ(policy->cards[0].priority, 0u);
  EXPECT_EQ(store.Find("chat")->slice.priority, model::Priority::kHigh);
}

TEST_F(LimitsTest, ChecksRoomBesideTheOthers) {
  Store store = Open();
  NewSlice first = Asking(4000, "first"), second = Asking(5000, "second");
  first.request.only_cards = second.request.only_cards = {"0"};
  ASSERT_TRUE(store.Commit(TwoCards(), first));
  ASSERT_TRUE(store.Commit(TwoCards(), second));
  EXPECT_TRUE(store.SetLimits(TwoCards(), "first", Memory(5000)));
  Result<Changed> changed = store.SetLimits(TwoCards(), "first", Memory(5001));
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, Code::kResourceExhausted);
  EXPECT_EQ(changed.error().message,
            "'first' on card 0: asked 5,001 MiB, free 5,000 MiB of 10,000 MiB (1 slice)");
  EXPECT_EQ(store.SetLimits(TwoCards(), "first", Memory(20'000)).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(store.SetLimits(TwoCards(), "third", Memory(1)).error().message,
            "NAME: 'third' is no live slice; live: first, second");
  EXPECT_EQ(store.Find("first")->slice.cards[0].memory_bytes, 5000 * model::kMib);
}

TEST_F(LimitsTest, OnlyTheOwnerAndRootMayChange) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to play two users";
  Store store = Open();
  ASSERT_TRUE(store.Commit(TwoCards(), Asking(4000, "chat")));
  int answer = InChild([this] {
    if (setgid(1000) != 0 || setuid(1000) != 0) return 1;
    Result<Changed> changed = Open().SetLimits(TwoCards(), "chat", Memory(1));
    if (changed) return 2;
    return changed.error().code == Code::kPermissionDenied ? 0 : 3;
  });
  EXPECT_EQ(answer, 0);
}

TEST_F(LimitsTest, AWaiterOnTheGenerationIsWoken) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(4000, "chat"));
  ASSERT_TRUE(record);
  int fd = open((record->directory + "/policy").c_str(), O_RDONLY);
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<char*>(page) +
                                                offsetof(contract::PolicyHeader, generation));
  std::uint32_t before = *word;
  std::thread waiter([&] {
    timespec bound{20, 0};  // far longer than the change takes; a missed wake fails the test
    EXPECT_TRUE(syscall(SYS_futex, word, FUTEX_WAIT, before, &bound, nullptr, 0) == 0 ||
                errno == EAGAIN)
        << errno;
  });
  ASSERT_TRUE(store.SetLimits(TwoCards(), "chat", Memory(5000)));
  waiter.join();
  auto* limit =
      reinterpret_cast<std::uint64_t*>(static_cast<char*>(page) + sizeof(contract::PolicyHeader) +
                                       offsetof(contract::PolicyCard, limit_bytes));
  EXPECT_EQ(*limit, 5000 * model::kMib) << "seen through a mapping that was there before";
  munmap(page, 4096);
  close(fd);
}

TEST_F(LimitsTest, ATruncatedPolicyIsAnErrorNotADeath) {
  Store store = Open();
  Result<SliceRecord> record = store.Commit(TwoCards(), Asking(4000, "chat"));
  ASSERT_TRUE(record);
  std::string policy = record->directory + "/policy";
  ASSERT_EQ(truncate(policy.c_str(), 600), 0);
  EXPECT_EQ(ChangePolicy(*OpenSlice(*record), {{1, 1, 1}}).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace tessera::node
