#include "base/plain_text.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(PlainText, ParsersGetNoControlCharacters) {
  EXPECT_TRUE(IsPlainText("kind: Pod\n\tname: 추론\r\n"));
  EXPECT_FALSE(IsPlainText(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsPlainText("\x1b[31m"));
  EXPECT_FALSE(IsPlainText("\xff"));
  EXPECT_FALSE(
      IsPlainText("a: \xc2\x9b"
                  "31m"))
      << "C1 control";
  EXPECT_FALSE(IsPlainText("a: \xe3\x81")) << "half a character";
  EXPECT_TRUE(IsPlainText("\xef\xbb\xbfkind: Pod")) << "byte order mark";
}

TEST(Printable, KeepsTextAndTamesTheRest) {
  EXPECT_EQ(Printable("python serve.py"), "python serve.py");
  EXPECT_EQ(Printable("추론 \xf0\x9f\x98\x80"), "추론 \xf0\x9f\x98\x80");
  EXPECT_EQ(Printable("\x1b[31mred\n"), "?[31mred?");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "??31m")
      << "C1 control";
  EXPECT_EQ(Printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(Printable("\xff\xfe\xc0\x80\xed\xa0\x80"), "???????");
  EXPECT_EQ(Printable("\xe3\x81"), "??");
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b\xe2\x80\xa8"
                      "c"),
            "a???b???c")
      << "direction, line separator";
  EXPECT_EQ(Printable("\xf0\x80\x80\x80\xf4\x90\x80\x80"), "????????")
      << "overlong, beyond Unicode";
}

TEST(OneLine, TamesWhatTerminalsObey) {
  EXPECT_EQ(Shown("8\n9"), "8?9");
  EXPECT_EQ(Shown("\x1b[2J\x7f"), "?[2J?");
  EXPECT_EQ(Shown("추론"), "추론");
  EXPECT_EQ(Shown("\xc2\x9b"
                  "31m\xff"),
            "??31m?");
}

TEST(OneLine, CutsBetweenCharacters) {
  EXPECT_EQ(OneLine("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(OneLine("abcdefghi", 8), "abcde...");
  EXPECT_EQ(OneLine("추추추추", 8), "추...");
  EXPECT_EQ(Shown(std::string(5000, '9')).size(), kShownBytes);
}

}  // namespace
}  // namespace tessera::base
