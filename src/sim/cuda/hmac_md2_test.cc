#include "sim/cuda/hmac_md2.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace tessera::sim {
namespace {

std::string Hex(const std::uint8_t (&digest)[kMd2Bytes]) {
  std::string text;
  for (std::uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

std::string Md2Of(const std::string& text) {
  std::uint8_t digest[kMd2Bytes];
  Md2(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), digest);
  return Hex(digest);
}

// RFC 1319, A.5 "Test suite".
TEST(Md2, AnswersAsTheRfc) {
  EXPECT_EQ(Md2Of(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(Md2Of("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(Md2Of("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(Md2Of("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(Md2Of("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
}

// HMAC by its definition, H(K ^ opad, H(K ^ ipad, text)), with strings.
TEST(HmacMd2, FollowsTheDefinition) {
  std::uint8_t key[kMd2Bytes], digest[kMd2Bytes], inner[kMd2Bytes];
  std::string ipad, opad;
  for (std::size_t i = 0; i < kMd2Bytes; ++i) {
    key[i] = static_cast<std::uint8_t>(i * 7);
    ipad += static_cast<char>(key[i] ^ 0x36);
    opad += static_cast<char>(key[i] ^ 0x5C);
  }
  const std::string text = "what do ya want for nothing?";
  const std::string first = ipad + text;
  Md2(reinterpret_cast<const std::uint8_t*>(first.data()), first.size(), inner);
  const std::string second = opad + std::string(reinterpret_cast<char*>(inner), kMd2Bytes);
  HmacMd2(key, reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), digest);
  EXPECT_EQ(Hex(digest), Md2Of(second));
}

}  // namespace
}  // namespace tessera::sim
