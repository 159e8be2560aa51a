// What CUDA shows of a slice for each form of the program's own CUDA_VISIBLE_DEVICES.
#include "entry/visible.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::fence {
namespace {

VisibleCard Card(std::uint8_t first, bool is_mig = false) {
  VisibleCard card{{}, is_mig};
  for (int i = 0; i < 16; ++i) card.uuid[i] = static_cast<std::uint8_t>(first + i);
  return card;
}

const std::vector<VisibleCard> kCards = {Card(0x10), Card(0x60), Card(0x1f)};
const std::string kFirst = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f";
const std::string kSecond = "GPU-60616263-6465-6667-6869-6a6b6c6d6e6f";
const std::string kThird = "GPU-1f202122-2324-2526-2728-292a2b2c2d2e";

std::string Visible(const char* wanted, const std::vector<VisibleCard>& cards = kCards) {
  char text[1024];
  return std::string(VisibleDevices(cards, wanted, text));
}

TEST(VisibleDevices, UnsetShowsTheSliceInItsOrder) {
  EXPECT_EQ(Visible(nullptr), kFirst + "," + kSecond + "," + kThird);
}

TEST(VisibleDevices, IndicesCountWithinTheSlice) {
  EXPECT_EQ(Visible("1"), kSecond);
  EXPECT_EQ(Visible("2,0"), kThird + "," + kFirst);
  EXPECT_EQ(Visible(" 1 , 0"), kSecond + "," + kFirst);
}

TEST(VisibleDevices, ListEndsAtTheFirstBadEntry) {
  EXPECT_EQ(Visible("0,3,1"), kFirst);
  EXPECT_EQ(Visible("0,-1,1"), kFirst);
  EXPECT_EQ(Visible("0,x,1"), kFirst);
  EXPECT_EQ(Visible("0,,1"), kFirst);
  EXPECT_EQ(Visible("1x,0"), "-1");
  EXPECT_EQ(Visible("99999999999999999999"), "-1");
}

TEST(VisibleDevices, EmptyAndNoneHideEverything) {
  EXPECT_EQ(Visible(""), "-1");
  EXPECT_EQ(Visible("-1"), "-1");
  EXPECT_EQ(Visible("NoDevFiles"), "-1");
}

TEST(VisibleDevices, DuplicatesHideEverything) {
  EXPECT_EQ(Visible("0,1,0"), "-1");
  EXPECT_EQ(Visible(("0," + kFirst).c_str()), "-1");
}

TEST(VisibleDevices, UuidsAndTheirBeginnings) {
  EXPECT_EQ(Visible(kSecond.c_str()), kSecond);
  EXPECT_EQ(Visible("GPU-60,GPU-10"), kSecond + "," + kFirst);
  EXPECT_EQ(Visible("gpu-6061"), kSecond);
  EXPECT_EQ(Visible("GPU-1"), "-1") << "fits two cards";
  EXPECT_EQ(Visible("GPU-"), "-1");
  EXPECT_EQ(Visible((kSecond + "0").c_str()), "-1");
}

TEST(VisibleDevices, ACardOutsideTheSliceIsABadEntry) {
  EXPECT_EQ(Visible("GPU-ffffffff,0"), "-1");
}

TEST(VisibleDevices, MigInstances) {
  const std::vector<VisibleCard> mig = {Card(0x10, true)};
  EXPECT_EQ(Visible(nullptr, mig), "MIG-" + kFirst.substr(4));
  EXPECT_EQ(Visible("MIG-1011", mig), "MIG-" + kFirst.substr(4));
  EXPECT_EQ(Visible("GPU-1011", mig), "-1");
}

}  // namespace
}  // namespace tessera::fence
