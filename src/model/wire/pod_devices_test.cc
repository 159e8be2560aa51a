#include "model/wire/pod_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/resources.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

using ::testing::HasSubstr;

constexpr const char* kName = contract::kNvidiaAnnotations.allocated;

const PromisedDevice kOne{"GPU-1", "NVIDIA", 3000, 30};
const PromisedDevice kTwo{"GPU-2", "NVIDIA", 1000, 0};

Result<PodDevices> Read(const std::string& value) { return ReadPodDevices(kName, value); }

std::string ErrorOf(const Result<PodDevices>& devices) {
  EXPECT_FALSE(devices);
  if (devices) return "";
  EXPECT_EQ(devices.error().code, Code::kInvalidArgument);
  EXPECT_EQ(devices.error().message.rfind(kName, 0), 0u) << devices.error().message;
  EXPECT_EQ(devices.error().message.find('\n'), std::string::npos);
  return devices.error().message;
}

struct Form {
  const char* value;
  PodDevices devices;
};

TEST(PodDevices, CurrentFormBothWays) {
  for (const Form& form :
       {Form{"", {}}, Form{";", {{}}}, Form{";;", {{}, {}}},
        Form{"GPU-1,NVIDIA,3000,30:;", {{kOne}}}, Form{";GPU-1,NVIDIA,3000,30:;", {{}, {kOne}}},
        Form{"GPU-1,NVIDIA,3000,30:;;", {{kOne}, {}}},
        Form{"GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,1000,0:;;GPU-1,NVIDIA,3000,30:;",
             {{kOne, kTwo}, {}, {kOne}}}}) {
    EXPECT_EQ(Read(form.value).value(), form.devices) << form.value;
    EXPECT_EQ(WritePodDevices(kName, form.devices).value(), form.value);
  }
}

TEST(PodDevices, FormsOfOlderVersions) {
  const PromisedDevice bare{"GPU-1", "NVIDIA", {}, {}};
  const PromisedDevice mig{"GPU-1[0-1]", "NVIDIA", 5000, 0};
  for (const Form& form :
       {Form{",,0,0:;", {{}}}, Form{",,0,0:;GPU-1,NVIDIA,3000,30:;", {{}, {kOne}}},
        Form{"GPU-1,NVIDIA:;", {{bare}}}, Form{"GPU-1,NVIDIA:", {{bare}}},
        Form{"GPU-1,NVIDIA,3000,30", {{kOne}}}, Form{"GPU-1,NVIDIA,3000,30:", {{kOne}}},
        Form{"GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,1000,0", {{kOne, kTwo}}},
        Form{"GPU-1,NVIDIA,3000,30,later:;", {{kOne}}}, Form{"GPU-1[0-1],NVIDIA,5000,0:;", {{mig}}},
        Form{"::;:", {{}, {}}}}) {
    const auto devices = Read(form.value);
    ASSERT_TRUE(devices) << devices.error().message;
    EXPECT_EQ(*devices, form.devices) << form.value;
  }
  EXPECT_THAT(WritePodDevices(kName, {{bare}}).error().message,
              HasSubstr("container 1: 'GPU-1' is not legal: a device with memory and cores"));
}

TEST(PodDevices, NamesWhatIsWrong) {
  EXPECT_THAT(ErrorOf(Read(";nonsense")), HasSubstr("container 2: 'nonsense' is not legal: UUID"));
  EXPECT_THAT(ErrorOf(Read("GPU-1,NVIDIA,3000:;")), HasSubstr("container 1: 'GPU-1,NVIDIA,3000'"));
  EXPECT_THAT(ErrorOf(Read(",NVIDIA,1,1:;")), HasSubstr("container 1: UUID: '' is not legal"));
  EXPECT_THAT(ErrorOf(Read("GPU-1,,1,1:;")), HasSubstr("container 1: type: '' is not legal"));
  EXPECT_THAT(ErrorOf(Read(",,1,0:;")), HasSubstr("container 1: UUID: '' is not legal"));
  for (const char* number : {"", "-1", "+1", "x", "1.5", "16Gi", " 1", "2147483648"}) {
    EXPECT_THAT(ErrorOf(Read("GPU-1,NVIDIA," + std::string(number) + ",1:;")),
                HasSubstr("memory: '" + std::string(number) + "' is not legal: a whole number"));
    EXPECT_THAT(ErrorOf(Read("GPU-1,NVIDIA,1," + std::string(number) + ":;")),
                HasSubstr("cores: '" + std::string(number) + "' is not legal: a whole number"));
  }
  EXPECT_THAT(ErrorOf(Read("\x1b[2J\n,NVIDIA,1,1:;")), HasSubstr("UUID: '?[2J?' is not legal"));
  const std::string long_id(200, 'a');
  EXPECT_THAT(ErrorOf(Read(long_id + ",NVIDIA,1,1:;")),
              HasSubstr("aaa...' is not legal: 1 to 128"));
}

TEST(PodDevices, InputIsBounded) {
  EXPECT_THAT(ErrorOf(Read(std::string(kMaxAnnotationBytes + 1, ';'))), HasSubstr("262144 bytes"));
  EXPECT_THAT(ErrorOf(Read(std::string(kMaxContainers + 1, ';'))), HasSubstr("1024 containers"));
  EXPECT_EQ(Read(std::string(kMaxContainers, ';')).value().size(), kMaxContainers);
  std::string many;
  for (std::size_t i = 0; i <= kMaxPodDevices; ++i) many += "A,B,1,1:";
  EXPECT_THAT(ErrorOf(Read(many)), HasSubstr("at most 4096 devices"));
}

TEST(PodDevices, BelongToContainers) {
  struct Case {
    PodDevices written;
    std::size_t init, app;
    PodDevices fitted;
  };
  for (const Case& c : {Case{{{kOne}, {kTwo}}, 1, 1, {{kOne}, {kTwo}}},
                        Case{{{kOne}, {}, {}}, 0, 1, {{kOne}}},  // re-encoded by old plugins
                        Case{{{kOne}}, 2, 1, {{}, {}, {kOne}}},  // no init containers then
                        Case{{{}, {kOne}}, 1, 1, {{}, {kOne}}}, Case{{}, 1, 2, {{}, {}, {}}},
                        Case{{{}}, 0, 2, {{}, {}}},  // blanked
                        Case{{{}, {}, {}, {}}, 0, 1, {{}}}}) {
    const auto fitted = ForContainers(kName, c.written, c.init, c.app);
    ASSERT_TRUE(fitted) << fitted.error().message;
    EXPECT_EQ(*fitted, c.fitted);
  }
  EXPECT_THAT(ErrorOf(ForContainers(kName, {{kOne}, {kTwo}}, 0, 1)),
              HasSubstr("'2 containers' is not legal: an entry for each of 0 init containers and 1 "
                        "containers"));
  EXPECT_FALSE(ForContainers(kName, {{kOne}}, 0, 2));
  EXPECT_FALSE(ForContainers(kName, {{kOne}, {}}, 2, 1));
}

TEST(PodDevices, WritesNothingThatItWouldNotRead) {
  for (const char* word : {"", "a,b", "a:b", "a;b", "a\nb"}) {
    EXPECT_FALSE(WritePodDevices(kName, {{PromisedDevice{word, "NVIDIA", 1, 1}}})) << word;
    EXPECT_FALSE(WritePodDevices(kName, {{PromisedDevice{"GPU-1", word, 1, 1}}})) << word;
  }
  EXPECT_FALSE(WritePodDevices(kName, {{PromisedDevice{"GPU-1", "NVIDIA", 2'147'483'648u, 1}}}));
  EXPECT_FALSE(WritePodDevices(kName, PodDevices(kMaxContainers + 1)));
}

}  // namespace
}  // namespace tessera::model::wire
