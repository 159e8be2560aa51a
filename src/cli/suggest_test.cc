#include "cli/suggest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tessera::cli {
namespace {

constexpr std::array<std::string_view, 5> kWords = {"run", "ps", "top", "limit", "explain"};

TEST(Nearest, FindsOneLetterOff) {
  EXPECT_EQ(Nearest("rum", kWords), "run");
  EXPECT_EQ(Nearest("limt", kWords), "limit");
  EXPECT_EQ(Nearest("explian", kWords), "explain");
}

TEST(Nearest, SwappedNeighboursAreOneMistake) {
  EXPECT_EQ(Nearest("sp", kWords), "ps");
  EXPECT_EQ(Nearest("tpo", kWords), "top");
  EXPECT_EQ(Nearest("urn", kWords), "run");
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(Nearest("kubernetes", kWords), "");
  EXPECT_EQ(Nearest("", kWords), "");
  EXPECT_EQ(Nearest(std::string(10000, 'x'), kWords), "");
}

}  // namespace
}  // namespace tessera::cli
