// Runs the cases of tests/data/pods: NAME.pod.yaml beside NAME.want.yaml.
#include "model/pod/pod.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/quantity.h"

namespace tessera::model {
namespace {

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(POD_CASES)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".pod.yaml")) names.push_back(name.substr(0, name.size() - 9));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class PodCase : public ::testing::TestWithParam<std::string> {};

TEST_P(PodCase, MeansWhatIsWrittenBesideIt) {
  const std::string base = std::string(POD_CASES) + "/" + GetParam();
  const YAML::Node want = YAML::LoadFile(base + ".want.yaml");
  const std::string container = want["container"] ? want["container"].as<std::string>() : "";
  const Result<PodContainer> got = ReadPodContainer(ReadAll(base + ".pod.yaml"), container);
  if (want["error"]) {
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    EXPECT_EQ(got.error().message, want["error"].as<std::string>());
    EXPECT_EQ(got.error().message.find('\n'), std::string::npos);
    return;
  }
  ASSERT_TRUE(got) << got.error().message;
  std::ostringstream text;
  const Request& request = got->request;
  text << "pod " << got->pod << ", container " << got->container << ", cards "
       << request.card_count;
  if (request.memory_bytes) text << ", " << *request.memory_bytes / kMib << " MiB";
  if (request.memory_percent) text << ", " << *request.memory_percent << " %";
  text << ", cores " << request.cores << ", priority " << ToString(request.priority) << ", policy "
       << ToString(request.policy);
  for (const std::string& card : request.only_cards) text << ", on " << card;
  for (const std::string& word : got->command) text << " [" << word << "]";
  EXPECT_EQ(text.str(), want["request"].as<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Data, PodCase, ::testing::ValuesIn(CaseNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(Pod, HugeAndDeepTextsAreErrors) {
  EXPECT_FALSE(ReadPodContainer(std::string(kMaxPodBytes + 1, ' '), ""));
  EXPECT_FALSE(ReadPodContainer(std::string(100000, '['), ""));
  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  EXPECT_FALSE(ReadPodContainer(dashes, ""));
  std::string laughs = "a0: &a0 [x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) laughs += (j ? "," : "") + before;
    laughs += "]\n";
  }
  EXPECT_FALSE(ReadPodContainer(laughs, ""));
}

}  // namespace
}  // namespace tessera::model
