#include "base/yaml/yaml.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

std::string Problem(const std::string& text) {
  const Result<std::vector<YAML::Node>> documents = LoadYaml(text);
  return documents ? "" : documents.error().message;
}

TEST(LoadYaml, ReadsEveryDocumentThatIsNotEmpty) {
  const Result<std::vector<YAML::Node>> documents =
      LoadYaml("# first\n---\na: 1\n--- # second\n---\nb: 2\n---");
  ASSERT_TRUE(documents) << documents.error().message;
  ASSERT_EQ(documents->size(), 2u);
  EXPECT_EQ((*documents)[1]["b"].as<int>(), 2);
  EXPECT_EQ(Problem("a: --- b\n----\n"), "") << "only a line of its own divides";
}

TEST(LoadYaml, LinesCountFromTheBeginningOfTheText) {
  EXPECT_EQ(Problem("a: 1\n---\nb: 1\nb: 2\n"), "key 'b' stands twice (line 4)");
  EXPECT_EQ(Problem("a: 1\n---\nb: 1\n---\n\nc: ]\n").substr(0, 13), "YAML, line 6:");
}

TEST(LoadYaml, AsManyDocumentsAsNobodyWritesAreRefused) {
  std::string text;
  for (int i = 0; i < 999; ++i) text += "---\na: 1\n";
  ASSERT_TRUE(LoadYaml(text));
  EXPECT_EQ(LoadYaml(text)->size(), 999u);
  for (int i = 0; i < 40'000; ++i) text += "---\n";
  EXPECT_EQ(Problem(text), "YAML of more than 1,000 documents");
}

}  // namespace
}  // namespace tessera::base
