#include "model/quantity.h"

#include <gtest/gtest.h>

namespace tessera::model {
namespace {

TEST(Memory, LegalForms) {
  EXPECT_EQ(*ParseMemory("--mem", "8000"), 8000 * kMib);
  EXPECT_EQ(*ParseMemory("--mem", "8000Mi"), 8000 * kMib);
  EXPECT_EQ(*ParseMemory("--mem", "8000MiB"), 8000 * kMib);
  EXPECT_EQ(*ParseMemory("--mem", "8Gi"), 8192 * kMib);
  EXPECT_EQ(*ParseMemory("--mem", "8GiB"), 8192 * kMib);
  EXPECT_EQ(*ParseMemory("--mem", "16777216"), kMaxMemory);
}

TEST(Memory, EverythingElseNamesFieldValueAndWhatIsLegal) {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "+1",
                           "1.5",
                           "1.5Gi",
                           " 1",
                           "1 ",
                           "1 Gi",
                           "8000mib",
                           "8gi",
                           "8G",
                           "8GB",
                           "8M",
                           "8k",
                           "8Ti",
                           "0x10",
                           "1e3",
                           "Gi",
                           "eight",
                           "16777217",
                           "18446744073709551616",
                           "18446744073709551615Gi",
                           "99999999999999999999999999"}) {
    Result<std::uint64_t> parsed = ParseMemory("--mem", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("--mem: '" + std::string(text) + "'"), std::string::npos);
    EXPECT_NE(parsed.error().message.find("whole MiB from 1"), std::string::npos);
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
}

TEST(Cores, OneToHundred) {
  EXPECT_EQ(*ParseCores("--cores", "1"), 1u);
  EXPECT_EQ(*ParseCores("--cores", "100"), 100u);
  for (const char* text : {"", "0", "101", "-5", "30%", "30.0", "4294967297"}) {
    EXPECT_FALSE(ParseCores("--cores", text)) << text;
  }
}

TEST(Words, OnlyTheListedOnes) {
  EXPECT_EQ(*ParsePriority("--priority", "high"), Priority::kHigh);
  EXPECT_FALSE(ParsePriority("--priority", "hihg"));
  EXPECT_EQ(*ParsePolicy("--policy", "spread"), Policy::kSpread);
  EXPECT_FALSE(ParsePolicy("--policy", "pack"));
  EXPECT_FALSE(ParseCardCount("--cards", "17"));
}

TEST(Names, CheckedAndMade) {
  EXPECT_TRUE(CheckName("--name", "chat-1.b_c"));
  for (const std::string& text :
       {std::string(), std::string("-a"), std::string("a b"), std::string("a/b"),
        std::string("../x"), std::string(64, 'a'), std::string("a\nb")}) {
    EXPECT_FALSE(CheckName("--name", text)) << text;
  }
  EXPECT_EQ(NameFromCommand("/usr/bin/python3"), "python3");
  for (const std::string& command : {std::string("./my prog!"), std::string(""), std::string("/"),
                                     std::string("_x"), std::string(300, 'y')}) {
    EXPECT_TRUE(CheckName("name", NameFromCommand(command))) << command;
  }
}

TEST(MibText, GroupsThousands) {
  EXPECT_EQ(MibText(0), "0 MiB");
  EXPECT_EQ(MibText(999 * kMib + 5), "999 MiB");
  EXPECT_EQ(MibText(23028 * kMib), "23,028 MiB");
  EXPECT_EQ(MibText(1234567 * kMib), "1,234,567 MiB");
}

}  // namespace
}  // namespace tessera::model
