// Bodies of patches: what stands in them, and that no text breaks out of its string.
#include "kube/objects/patch.h"

#include <gtest/gtest.h>

#include "kube/text/json.h"

namespace tessera::kube {
namespace {

TEST(JsonPatch, WritesOperationsInOrder) {
  JsonPatch patch;
  EXPECT_TRUE(patch.empty());
  EXPECT_EQ(patch.Text(), "[]");
  patch.Test("/metadata/uid", "u").Add(JsonPointer({"metadata", "labels", "a/b~c"}), "x\"\n");
  patch.Replace("/spec/n", 3).Remove("/spec/m");
  EXPECT_EQ(patch.Text(),
            R"([{"op":"test","path":"/metadata/uid","value":"u"},)"
            R"({"op":"add","path":"/metadata/labels/a~1b~0c","value":"x\"\n"},)"
            R"({"op":"replace","path":"/spec/n","value":3},{"op":"remove","path":"/spec/m"}])");
  EXPECT_TRUE(ParseJson(patch.Text()));
}

TEST(MergePatch, SetsRemovesAndGuards) {
  EXPECT_EQ(MergePatch({}), R"({"metadata":{}})");
  const MetaChange change{.labels = {{"l", "1"}},
                          .annotations = {{"a", "x"}, {"b", std::nullopt}},
                          .uid = "u",
                          .resource_version = "7"};
  EXPECT_EQ(MergePatch(change),
            R"({"metadata":{"uid":"u","resourceVersion":"7","labels":{"l":"1"},)"
            R"("annotations":{"a":"x","b":null}}})");
}

TEST(Apply, NamesTheObject) {
  EXPECT_EQ(ApplyBody(kLeases, "Lease", "s", "n", "").value(),
            R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease",)"
            R"("metadata":{"name":"n","namespace":"s"}})");
  EXPECT_EQ(ApplyBody(kNodes, "Node", "", "n", R"({"metadata":{"labels":{"a":"b"}}})").value(),
            R"({"metadata":{"labels":{"a":"b"},"name":"n"},"apiVersion":"v1","kind":"Node"})");
  EXPECT_FALSE(ApplyBody(kNodes, "Node", "", "n", "[]"));
  EXPECT_FALSE(ApplyBody(kNodes, "Node", "", "n", "{"));
}

TEST(Quote, LeavesNothingOpen) {
  EXPECT_EQ(QuoteJson("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"");
}

}  // namespace
}  // namespace tessera::kube
