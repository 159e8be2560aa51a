#include "model/wire/pod_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/resources.h"
#include "model/wire/gpu_share.h"
#include "model/wire/handshake.h"

namespace tessera::model::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(BindPhase, ThreeWords) {
  EXPECT_EQ(ReadBindPhase("allocating").value(), BindPhase::kAllocating);
  EXPECT_EQ(ReadBindPhase("success").value(), BindPhase::kSuccess);
  EXPECT_EQ(ReadBindPhase("failed").value(), BindPhase::kFailed);
  for (const char* value : {"", "Success", "success ", "fail"}) {
    const auto phase = ReadBindPhase(value);
    ASSERT_FALSE(phase) << value;
    EXPECT_EQ(phase.error().message, "hami.io/bind-phase: '" + std::string(value) +
                                         "' is not legal: allocating, success or failed");
  }
}

TEST(UnixSeconds, BothWays) {
  EXPECT_EQ(ReadUnixSeconds(contract::kAnnotationBindTime, "1755734400").value(), 1755734400);
  EXPECT_EQ(WriteUnixSeconds(contract::kAnnotationBindTime, 1755734400).value(), "1755734400");
  for (const char* value : {"", "-1", "1.5", "253402300800", "1755734400s", "2026-01-02"}) {
    const auto seconds = ReadUnixSeconds(contract::kAnnotationPlaceTime, value);
    ASSERT_FALSE(seconds) << value;
    EXPECT_THAT(seconds.error().message,
                StartsWith("hami.io/vgpu-time: '" + std::string(value) + "' is not legal: whole"));
  }
  EXPECT_FALSE(WriteUnixSeconds(contract::kAnnotationBindTime, -1));
  EXPECT_FALSE(WriteUnixSeconds(contract::kAnnotationBindTime, 253'402'300'800));
}

TEST(NodeName, AsKubernetesTakesIt) {
  for (const std::string& name :
       {std::string("a"), std::string("node-1.zone.example"), std::string(253, 'a')}) {
    EXPECT_EQ(ReadNodeName(name).value(), name);
  }
  for (const std::string& name :
       {std::string(), std::string("Node"), std::string("-a"), std::string("a."),
        std::string("a_b"), std::string("a b"), std::string("a\n"), std::string(254, 'a')}) {
    const auto read = ReadNodeName(name);
    ASSERT_FALSE(read) << name;
    EXPECT_THAT(read.error().message, StartsWith("hami.io/vgpu-node: '"));
  }
  EXPECT_TRUE(FitsLabel(std::string(63, 'a')));
  EXPECT_FALSE(FitsLabel(std::string(64, 'a')));
}

constexpr const char* kHandshake = contract::kNvidiaAnnotations.handshake;
constexpr std::int64_t kFace = 1'706'054'404;  // 2024-01-24 00:00:04 UTC

TEST(Handshake, CurrentFormBothWays) {
  using State = Handshake::State;
  for (const auto& [value, state] :
       {std::pair{"Requesting_2024-01-24 00:00:04", State::kRequesting},
        {"Reported 2024-01-24 00:00:04", State::kReported},
        {"Deleted_2024-01-24 00:00:04", State::kDeleted}}) {
    const Handshake handshake{state, kFace, {}};
    EXPECT_EQ(ReadHandshake(kHandshake, value).value(), handshake) << value;
    EXPECT_EQ(WriteHandshake(kHandshake, handshake).value(), value);
  }
}

TEST(Handshake, FormsOfOlderVersions) {
  const Handshake plain{Handshake::State::kRequesting, kFace, {}};
  for (const char* value :
       {"Requesting_2024.01.24 00:00:04", "Requesting 2024-01-24 00:00:04",
        "Requesting_2024-01-24 00:00:04.434037031", "Requesting_2024-01-24 00:00:04 m=+1.5"}) {
    EXPECT_EQ(ReadHandshake(kHandshake, value).value(), plain) << value;
  }
  const auto go = ReadHandshake(
      kHandshake, "Requesting_2024-01-24 00:00:04.434037031 +0000 UTC m=+1104711.777756895");
  ASSERT_TRUE(go) << go.error().message;
  EXPECT_EQ(*go, (Handshake{Handshake::State::kRequesting, kFace, 0}));
  EXPECT_EQ(ReadHandshake(kHandshake, "Reported_2024-01-24 00:00:04 +0530 IST").value(),
            (Handshake{Handshake::State::kReported, kFace, 19800}));
  EXPECT_EQ(ReadHandshake(kHandshake, "Reported 2024-01-24 00:00:04 -0300 -03").value(),
            (Handshake{Handshake::State::kReported, kFace, -10800}));
  for (const char* value : {"Deleted", "Deleted_"}) {
    EXPECT_EQ(ReadHandshake(kHandshake, value).value(),
              (Handshake{Handshake::State::kDeleted, {}, {}}));
  }
}

TEST(Handshake, EverythingElseIsAnError) {
  for (const char* value :
       {"", "Asking_2024-01-24 00:00:04", "requesting_2024-01-24 00:00:04", "RequestingX",
        "Requesting_2024-01.24 00:00:04", "Requesting_2024-02-30 00:00:04",
        "Requesting_2024-13-01 00:00:04", "Requesting_1969-12-31 00:00:04",
        "Requesting_2024-01-24 24:00:04", "Requesting_2024-01-24 00:60:04",
        "Requesting_2024-01-24 00:00:60", "Requesting_2024-01-24T00:00:04",
        "Requesting_2024-01-24 00:00:04.", "Requesting_2024-01-24 00:00:04 ",
        "Requesting_2024-01-24 00:00:04 +25", "Requesting_2024-01-24 00:00:04 +2500 UTC",
        "Requesting_2024-01-24 00:00:04 m=", "Requesting_2024-01-24", "Requesting_1706054404"}) {
    const auto handshake = ReadHandshake(kHandshake, value);
    ASSERT_FALSE(handshake) << value;
    EXPECT_THAT(handshake.error().message, StartsWith("hami.io/node-handshake: '"));
    EXPECT_THAT(handshake.error().message, HasSubstr("is not legal: Requesting_, Reported or"));
  }
  const std::string zeros(300, '0');
  EXPECT_FALSE(ReadHandshake(kHandshake, "Requesting_2024-01-24 00:00:04." + zeros));
  EXPECT_FALSE(WriteHandshake(kHandshake, {Handshake::State::kDeleted, {}, {}}));
  EXPECT_FALSE(WriteHandshake(kHandshake, {Handshake::State::kDeleted, -1, {}}));
}

using Annotations = std::vector<std::pair<std::string, std::string>>;

Annotations GpuSharePod() {
  return {{"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"},
          {"ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1755734400123456789"},
          {"ALIYUN_COM_GPU_MEM_DEV", "15"},
          {"ALIYUN_COM_GPU_MEM_IDX", "1"},
          {"ALIYUN_COM_GPU_MEM_POD", "2"},
          {"hami.io/bind-phase", "success"}};
}

TEST(GpuShareTest, ReadsWhatTheExtenderWrote) {
  EXPECT_EQ(ReadGpuShare(GpuSharePod()).value(),
            (GpuShare{1, 2, 15, false, 1'755'734'400'123'456'789}));
  Annotations assigned = GpuSharePod();
  assigned[0].second = "true";
  EXPECT_TRUE(ReadGpuShare(assigned).value()->assigned);
  EXPECT_FALSE(ReadGpuShare({}).value().has_value());
  EXPECT_FALSE(ReadGpuShare(Annotations{{"a", "b"}}).value().has_value());
}

TEST(GpuShareTest, NamesWhatIsWrong) {
  struct Case {
    std::size_t place;
    const char* value;
    const char* legal;
  };
  for (const Case& c : {Case{0, "yes", "true or false"},
                        {0, "", "true or false"},
                        {1, "-1", "whole nanoseconds"},
                        {1, "9223372036854775808", "whole nano"},
                        {2, "0", "whole units"},
                        {2, "15GiB", "whole units"},
                        {3, "-1", "a whole number"},
                        {3, "GPU-1", "a whole number"},
                        {4, "0", "whole units"},
                        {4, "16", "at most the card's 15 units"}}) {
    Annotations annotations = GpuSharePod();
    annotations[c.place].second = c.value;
    const auto read = ReadGpuShare(annotations);
    ASSERT_FALSE(read) << annotations[c.place].first << ' ' << c.value;
    EXPECT_THAT(read.error().message, StartsWith(annotations[c.place].first + ": '" + c.value +
                                                 "' is not legal: " + c.legal));
  }
  for (std::size_t i = 0; i < 5; ++i) {
    Annotations annotations = GpuSharePod();
    const std::string name = annotations[i].first;
    annotations.erase(annotations.begin() + static_cast<std::ptrdiff_t>(i));
    const auto read = ReadGpuShare(annotations);
    ASSERT_FALSE(read) << name;
    EXPECT_THAT(read.error().message, StartsWith(name + ": ''"));
  }
}

}  // namespace
}  // namespace tessera::model::wire
