// Base64, times and URIs: what goes out comes back, and what is broken is refused.
#include <gtest/gtest.h>

#include "kube/text/base64.h"
#include "kube/text/json.h"
#include "kube/text/time.h"
#include "kube/text/uri.h"

namespace tessera::kube {
namespace {

TEST(Base64, RoundTripsEveryLengthAndByte) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)).value(), bytes);
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_EQ(EncodeBase64("user:pass"), "dXNlcjpwYXNz");
  EXPECT_EQ(DecodeBase64("dXNl\ncjpw YXNz\n").value(), "user:pass");
}

TEST(Base64, RefusesWhatIsBroken) {
  for (const char* text :
       {"a", "abc", "ab=c", "====", "a===", "ab c", "\xff\xff\xff\xff", "abc-"}) {
    EXPECT_FALSE(DecodeBase64(text)) << text;
  }
}

TEST(Time, ReadsWhatKubernetesWrites) {
  EXPECT_EQ(ParseTime("1970-01-01T00:00:00Z").value(), 0);
  EXPECT_EQ(ParseTime("2026-11-30T14:22:10Z").value(), 1796048530'000000);
  EXPECT_EQ(ParseTime("2026-11-30T14:22:10.5Z").value(), 1796048530'500000);
  EXPECT_EQ(ParseTime("2026-11-30T14:22:10.123456789Z").value(), 1796048530'123456);
  EXPECT_EQ(ParseTime("2026-11-30T15:22:10+01:00").value(), 1796048530'000000);
  EXPECT_EQ(FormatTime(1796048530), "2026-11-30T14:22:10Z");
  EXPECT_EQ(FormatMicroTime(1796048530'000007), "2026-11-30T14:22:10.000007Z");
  for (std::int64_t s = 0; s < 8'000'000'000; s += 86'399 * 97) {
    EXPECT_EQ(ParseTime(FormatTime(s)).value(), s * 1'000'000);
  }
}

TEST(Time, RefusesWhatIsNone) {
  for (const char* text :
       {"", "2026-11-30", "2026-11-30T14:22:10", "2026-13-30T14:22:10Z", "2026-11-30T24:22:10Z",
        "2026-11-30T14:22:10Zx", "1969-12-31T23:59:59Z", "2026-11-30T14:22:10.Z",
        "2026-11-30T14:22:10+1:00", "1970-01-01T00:00:00+01:00"}) {
    EXPECT_FALSE(ParseTime(text)) << text;
  }
}

TEST(Uri, QueriesSurviveEveryCharacter) {
  std::string path = "/api/v1/pods";
  AppendQuery(path, "labelSelector", "a in (b,c),d!=e&f");
  AppendQuery(path, "limit", "500");
  EXPECT_EQ(path, "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29%2Cd%21%3De%26f&limit=500");
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(PercentDecode(PercentEncode(all)), all);
  EXPECT_EQ(PercentDecode("%zz%4"), "%zz%4");
}

TEST(Json, FindsByPathAndRefusesNonsense) {
  const auto root = ParseJson(R"({"a":{"b":"c","d":1}})").value();
  EXPECT_EQ(StringAt(root, {"a", "b"}), "c");
  EXPECT_EQ(StringAt(root, {"a", "d"}), "");
  EXPECT_EQ(StringAt(root, {"a", "b", "c"}), "");
  EXPECT_EQ(At(root, {"x"}), nullptr);
  EXPECT_FALSE(ParseJson("{} {}"));
  EXPECT_FALSE(ParseJson(std::string(1000, '[')));
}

}  // namespace
}  // namespace tessera::kube
