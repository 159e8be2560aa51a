#include "cli/text.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Text, PadsAndCutsByColumns) {
  EXPECT_EQ(Left("chat", 6), "chat  ");
  EXPECT_EQ(Right("chat", 6), "  chat");
  EXPECT_EQ(Left("a-long-name", 6), "a-lon~");
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut("abc", 0), "");
  EXPECT_EQ(Columns("추론"), 4u);
  EXPECT_EQ(Left("추론서버", 6), "추론~ ");
  EXPECT_EQ(Columns("e\xcc\x81"), 1u);
}

TEST(Text, LongCommandLinesLoseFoldersFirst) {
  EXPECT_EQ(CommandLine("/bin/true -x", 14), "/bin/true -x  ");
  EXPECT_EQ(CommandLine("/opt/venv/bin/python /srv/app/serve.py --port 80", 27),
            "python serve.py --port 80  ");
  EXPECT_EQ(CommandLine("/opt/venv/bin/python /srv/app/serve.py --port 80", 12), "python serv~");
  EXPECT_EQ(CommandLine("/a/very/long/folder/ /", 8), "/a/very~");
  EXPECT_EQ(CommandLine("", 3), "   ");
}

TEST(Text, SurvivesBrokenUtf8) {
  EXPECT_EQ(Columns("\xf0"), 1u);
  EXPECT_EQ(Left("\xe3\x81", 4), "??  ");
}

TEST(Text, Wraps) {
  EXPECT_EQ(Wrapped("one two three", 8, "  "), "one two\n  three\n");
  EXPECT_EQ(Wrapped("  one two", 80, ""), "  one two\n");
  EXPECT_EQ(Wrapped("ok      fine", 80, ""), "ok      fine\n");
  EXPECT_EQ(Wrapped("a-word-longer-than-a-line b", 8, "  "), "a-word-longer-than-a-line\n  b\n");
  EXPECT_EQ(Wrapped("", 8, ""), "\n");
}

TEST(Text, Numbers) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(Thousands(23028), "23,028");
  EXPECT_EQ(Thousands(1234567), "1,234,567");
  EXPECT_EQ(Mib(std::uint64_t{23028} << 20), "23,028");
  EXPECT_EQ(Mib(512), "<1");
  EXPECT_EQ(Mib(0), "0");
  EXPECT_EQ(Age(-5), "0s");
  EXPECT_EQ(Age(59), "59s");
  EXPECT_EQ(Age(61), "1m");
  EXPECT_EQ(Age(7200), "2h");
  EXPECT_EQ(Age(200000), "2d");
  EXPECT_EQ(Percent(1, 4), "25 %");
  EXPECT_EQ(Percent(1, 0), "-");
}

}  // namespace
}  // namespace tessera::cli
