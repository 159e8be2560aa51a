#include "contract/hami_limit.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::contract {
namespace {

TEST(HamiMemoryLimit, ReadsWhatHamiWrites) {
  EXPECT_EQ(ParseMemoryLimit("8000m").value, 8000ull << 20);
  EXPECT_EQ(ParseMemoryLimit("8000M").value, 8000ull << 20);
  EXPECT_EQ(ParseMemoryLimit("3g").value, 3ull << 30);
  EXPECT_EQ(ParseMemoryLimit("3G").value, 3ull << 30);
  EXPECT_EQ(ParseMemoryLimit("512k").value, 512ull << 10);
  EXPECT_EQ(ParseMemoryLimit("1073741824").value, 1ull << 30);
  EXPECT_EQ(ParseMemoryLimit("262143g").value, 262143ull << 30);
}

TEST(HamiMemoryLimit, RefusesEverythingElse) {
  for (const char* text : {"",
                           " ",
                           "0",
                           "0m",
                           "00",
                           "2GB",
                           "2gb",
                           "3gi",
                           "3Gi",
                           "1.5g",
                           "-1",
                           "-1g",
                           "+1g",
                           "010g",
                           "0x10m",
                           "1 g",
                           " 1g",
                           "1g ",
                           "g",
                           "m",
                           "1t",
                           "1e3",
                           "8000mm",
                           "unlimited",
                           "99999999999999999999",
                           "18446744073709551616",
                           "281474976710656",
                           "262144g",
                           "274877906944k",
                           "１g"}) {
    const LimitValue got = ParseMemoryLimit(text);
    EXPECT_NE(got.error, nullptr) << "'" << text << "'";
    EXPECT_EQ(got.value, 0u) << "'" << text << "'";
  }
}

TEST(HamiMemoryLimit, NoTextGivesAValueTogetherWithAnError) {
  for (int a = 1; a < 128; ++a) {
    for (int b = 1; b < 128; ++b) {
      const std::string text{static_cast<char>(a), static_cast<char>(b)};
      const LimitValue got = ParseMemoryLimit(text);
      EXPECT_EQ(got.error == nullptr, got.value != 0) << text;
    }
  }
}

TEST(HamiCoreLimit, ZeroAndHundredMeanNoLimit) {
  EXPECT_EQ(ParseCoreLimit("0").value, 100u);
  EXPECT_EQ(ParseCoreLimit("100").value, 100u);
  EXPECT_EQ(ParseCoreLimit("30").value, 30u);
  for (const char* text : {"", "30%", "101", "-1", "030", "1.5", "x", "99999999999999999999"}) {
    EXPECT_NE(ParseCoreLimit(text).error, nullptr) << text;
  }
}

static_assert(ParseMemoryLimit("1g").value == 1ull << 30);

}  // namespace
}  // namespace tessera::contract
