#include "node/slice_choice.h"

#include <gtest/gtest.h>

namespace tessera::node {
namespace {

SliceRecord Slice(const std::string& id, const std::string& name, uid_t owner) {
  SliceRecord record;
  record.slice.id = id;
  record.slice.name = name;
  record.owner = owner;
  return record;
}

std::string Chosen(const std::vector<SliceRecord>& slices, const std::string& name, uid_t user) {
  std::vector<const SliceRecord*> live;
  for (const SliceRecord& slice : slices) live.push_back(&slice);
  const Result<std::size_t> chosen = ChooseSlice(live, name, user);
  return chosen ? slices[*chosen].slice.id : chosen.error().message;
}

TEST(ChooseSlice, AnIdIsNobodysName) {
  const std::vector<SliceRecord> slices = {Slice("b00b", "fe1d", 1002), Slice("fe1d", "a", 1001)};
  for (uid_t user : {0u, 1001u, 1002u}) EXPECT_EQ(Chosen(slices, "fe1d", user), "fe1d");
}

TEST(ChooseSlice, OnesOwnComesBeforeOthers) {
  const std::vector<SliceRecord> slices = {Slice("b", "chat", 1002), Slice("a", "chat", 1001)};
  EXPECT_EQ(Chosen(slices, "chat", 1001), "a");
  EXPECT_EQ(Chosen(slices, "chat", 1002), "b");
}

TEST(ChooseSlice, WhoCouldMeanSeveralIsAsked) {
  const std::vector<SliceRecord> slices = {Slice("b", "chat", 1002), Slice("a", "chat", 1001)};
  EXPECT_EQ(Chosen(slices, "chat", 0),
            "NAME: 'chat' is the name of 2 live slices, give the id: b of user 1002, a of user "
            "1001");
}

TEST(ChooseSlice, TheOnlyOneOfOthersIsMeant) {
  const std::vector<SliceRecord> slices = {Slice("b", "train", 1002), Slice("a", "chat", 1001)};
  EXPECT_EQ(Chosen(slices, "chat", 0), "a");
  EXPECT_EQ(Chosen(slices, "x\n", 0), "NAME: 'x?' is no live slice; live: train, chat");
  EXPECT_EQ(Chosen({}, "x", 0), "NAME: 'x' is no live slice; there is none");
}

}  // namespace
}  // namespace tessera::node
