// The library's own memory and text functions against libc's, under names of their own.
#define memcpy fence_memcpy
#define memmove fence_memmove
#define memset fence_memset
#define memcmp fence_memcmp
#define strlen fence_strlen
#define strcmp fence_strcmp
#define strncmp fence_strncmp
#define __stack_chk_fail fence_stack_chk_fail
#include "os/freestanding.cc"
#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef strlen
#undef strcmp
#undef strncmp

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

int Sign(int value) { return (value > 0) - (value < 0); }

TEST(Freestanding, CopiesAndFillsExactlyTheBytesAsked) {
  std::minstd_rand random(5);
  for (int round = 0; round < 5000; ++round) {
    std::vector<unsigned char> text(200), expected, got;
    for (auto& byte : text) byte = static_cast<unsigned char>(random());
    const std::size_t from = random() % 60, to = random() % 60, bytes = random() % 90;
    expected = got = text;
    std::memmove(&expected[to], &expected[from], bytes);
    EXPECT_EQ(fence_memmove(&got[to], &got[from], bytes), &got[to]);
    ASSERT_EQ(got, expected) << from << " " << to << " " << bytes;
    std::memset(&expected[to], 0x1a5, bytes);
    EXPECT_EQ(fence_memset(&got[to], 0x1a5, bytes), &got[to]);
    ASSERT_EQ(got, expected);
    std::memcpy(&expected[100 + to / 2], &text[from / 2], bytes / 2);
    EXPECT_EQ(fence_memcpy(&got[100 + to / 2], &text[from / 2], bytes / 2), &got[100 + to / 2]);
    ASSERT_EQ(got, expected);
  }
}

TEST(Freestanding, ComparesAsLibcDoes) {
  const std::vector<std::string> texts = {"",  "a",    "ab",   "abc",  "abd",
                                          "b", "\x7f", "\x80", "\xff", "cuMemAlloc"};
  for (const std::string& a : texts) {
    EXPECT_EQ(fence_strlen(a.c_str()), a.size());
    for (const std::string& b : texts) {
      EXPECT_EQ(Sign(fence_strcmp(a.c_str(), b.c_str())), Sign(std::strcmp(a.c_str(), b.c_str())))
          << a << " " << b;
      const std::size_t least = std::min(a.size(), b.size());
      for (std::size_t n = 0; n <= least + 1; ++n) {
        EXPECT_EQ(Sign(fence_strncmp(a.c_str(), b.c_str(), n)),
                  Sign(std::strncmp(a.c_str(), b.c_str(), n)))
            << a << " " << b;
        EXPECT_EQ(Sign(fence_memcmp(a.c_str(), b.c_str(), std::min(n, least))),
                  Sign(std::memcmp(a.c_str(), b.c_str(), std::min(n, least))));
      }
    }
  }
}

}  // namespace
