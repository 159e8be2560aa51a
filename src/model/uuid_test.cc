#include "model/uuid.h"

#include <gtest/gtest.h>

namespace tessera::model {
namespace {

TEST(Uuid, RoundTrip) {
  const std::string text = "GPU-4d7a1f3e-0011-2233-4455-66778899aabb";
  std::optional<Uuid> uuid = ParseUuid(text);
  ASSERT_TRUE(uuid);
  EXPECT_EQ(uuid->bytes[0], 0x4d);
  EXPECT_EQ(uuid->bytes[15], 0xbb);
  EXPECT_EQ(ToString(*uuid), text);
  EXPECT_EQ(ParseUuid("GPU-4D7A1F3E-0011-2233-4455-66778899AABB"), uuid);
  EXPECT_TRUE(ParseUuid("MIG-4d7a1f3e-0011-2233-4455-66778899aabb")->is_mig);
}

TEST(Uuid, RefusesEverythingElse) {
  for (const char* text :
       {"", "0", "GPU-", "4d7a1f3e-0011-2233-4455-66778899aabb",
        "GPU-4d7a1f3e-0011-2233-4455-66778899aab", "GPU-4d7a1f3e-0011-2233-4455-66778899aabbc",
        "GPU-4d7a1f3e00011-2233-4455-66778899aabb", "GPU-4d7a1f3g-0011-2233-4455-66778899aabb",
        "gpu-4d7a1f3e-0011-2233-4455-66778899aabb"}) {
    EXPECT_FALSE(ParseUuid(text)) << text;
  }
}

}  // namespace
}  // namespace tessera::model
