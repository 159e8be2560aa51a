#include "base/plain_text.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(PlainText, ParsersGetNoControlCharacters) {
  EXPECT_TRUE(IsPlainText("kind: Pod\n\tname: 추론\r\n"));
  EXPECT_FALSE(IsPlainText(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsPlainText("\x1b[31m"));
  EXPECT_FALSE(IsPlainText("\xff"));
}

TEST(OneLine, TamesWhatTerminalsObey) {
  EXPECT_EQ(Shown("8\n9"), "8?9");
  EXPECT_EQ(Shown("\x1b[2J\x7f"), "?[2J?");
  EXPECT_EQ(Shown("추론"), "추론");
}

TEST(OneLine, CutsBetweenCharacters) {
  EXPECT_EQ(OneLine("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(OneLine("abcdefghi", 8), "abcde...");
  EXPECT_EQ(OneLine("추추추추", 8), "추...");
  EXPECT_EQ(Shown(std::string(5000, '9')).size(), kShownBytes);
}

}  // namespace
}  // namespace tessera::base
