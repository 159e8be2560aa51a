#include "sim/nodes/node_description.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(Presets, AllAreLegal) {
  EXPECT_GE(PresetNames().size(), 9u);
  for (const std::string& name : PresetNames()) {
    Result<NodeDescription> node = LoadNode(name);
    ASSERT_TRUE(node) << name << ": " << node.error().message;
    EXPECT_GE(node->card_count, 1u) << name;
  }
}

TEST(Presets, HaveTheSizesPeopleSee) {
  const std::pair<const char*, std::uint64_t> sizes[] = {{"a10g", 23'028},    {"t4", 15'360},
                                                         {"l4", 23'034},      {"a100-80", 81'920},
                                                         {"h100-80", 81'559}, {"rtx4050", 6'141}};
  for (const auto& [name, mib] : sizes)
    EXPECT_EQ(LoadNode(name)->specs[0].memory_bytes, mib * kMiB) << name;
  const Result<NodeDescription> eight = LoadNode("node-8xa100");
  EXPECT_EQ(eight->card_count, 8u);
  EXPECT_EQ(eight->specs[0].nvlink_count, 12u);
  EXPECT_EQ(eight->specs[0].link_type[7], 3u);
  EXPECT_EQ(eight->specs[0].link_type[0], 0u);
  EXPECT_EQ(eight->specs[7].numa_node, 1u);
  EXPECT_EQ(LoadNode("a100-mig")->specs[0].mig_count, 3u);
}

TEST(Presets, A10gIsTheDefaultNode) {
  const NodeDescription built_in = DefaultNode(1);
  const Result<NodeDescription> preset = LoadNode("a10g");
  EXPECT_EQ(preset->specs[0].memory_bytes, built_in.specs[0].memory_bytes);
  EXPECT_STREQ(preset->specs[0].name, built_in.specs[0].name);
  EXPECT_EQ(preset->specs[0].sm_count, built_in.specs[0].sm_count);
}

TEST(NodeFile, OverridesWhatItNames) {
  const Result<NodeDescription> node = ParseNode(R"(
driver: {version: 570.10, cuda: 12.8}
seed: 7
costs: {kernel_ns: 5000}
cards:
  - {preset: t4, count: 2, memory_mib: 8000, pcie: {bus: 0x20}}
  - {name: Mine, uuid: GPU-01234567-89ab-cdef-0123-456789abcdef}
)");
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->driver_version_cuda, 12'080u);
  EXPECT_EQ(node->seed, 7u);
  EXPECT_EQ(node->costs.kernel_ns, 5'000u);
  EXPECT_EQ(node->card_count, 3u);
  EXPECT_EQ(node->specs[1].memory_bytes, 8'000 * kMiB);
  EXPECT_EQ(node->specs[1].cc_minor, 5u);
  EXPECT_EQ(node->specs[0].pci_bus, 0x20u);
  EXPECT_EQ(node->specs[1].pci_bus, 0x21u);
  EXPECT_EQ(CardUuidText(node->specs[2]), "GPU-01234567-89ab-cdef-0123-456789abcdef");
}

struct Bad {
  const char* text;
  const char* says;  // a part of the message
};

class BadNode : public ::testing::TestWithParam<Bad> {};

TEST_P(BadNode, IsRefusedByName) {
  const Result<NodeDescription> node = ParseNode(GetParam().text);
  ASSERT_FALSE(node);
  EXPECT_NE(node.error().message.find(GetParam().says), std::string::npos) << node.error().message;
  EXPECT_EQ(node.error().message.find('\n'), std::string::npos) << "one line";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadNode,
    ::testing::Values(
        Bad{"", "the file must be a map"}, Bad{"[1, 2]", "the file must be a map"},
        Bad{"cards: {", "not YAML"}, Bad{"seed: 1", "cards: a list of at least one card"},
        Bad{"cards: []", "cards: a list of at least one card"},
        Bad{"cards: [a10g]", "cards[0] must be a map"},
        Bad{"card: [{count: 1}]", "unknown field 'card'"},
        Bad{"cards: [{memory: 5}]", "unknown field 'cards[0].memory'"},
        Bad{"cards: [{count: 1, count: 2}]", "cards[0].count: given twice"},
        Bad{"seed: 1\nseed: 2\ncards: [{count: 1}]", "seed: given twice"},
        Bad{"cards: [{memory_mib: -1}]",
            "cards[0].memory_mib: '-1' is not legal: a whole number from 64"},
        Bad{"cards: [{memory_mib: 0}]", "cards[0].memory_mib: '0'"},
        Bad{"cards: [{memory_mib: 1.5}]", "cards[0].memory_mib: '1.5'"},
        Bad{"cards: [{memory_mib: 8GiB}]", "cards[0].memory_mib: '8GiB'"},
        Bad{"cards: [{memory_mib: 99999999999999999999}]",
            "cards[0].memory_mib: '99999999999999999999'"},
        Bad{"cards: [{memory_mib: [1]}]", "cards[0].memory_mib"},
        Bad{"cards: [{memory_mib: 1000, reserved_mib: 1001}]", "cards[0].reserved_mib: '1001'"},
        Bad{"cards: [{count: 17}]", "cards[0].count: '17'"},
        Bad{"cards: [{count: 16}, {count: 1}]", "more than 16 cards"},
        Bad{"cards: [{compute_capability: 86}]", "cards[0].compute_capability: '86'"},
        Bad{"cards: [{uuid: GPU-1}]", "cards[0].uuid: 'GPU-1'"},
        Bad{"cards: [{count: 2, uuid: GPU-01234567-89ab-cdef-0123-456789abcdef}]",
            "cards[0].count: '2'"},
        Bad{"cards: [{preset: gtx}]", "cards[0].preset: 'gtx' is not legal: one of a100-80"},
        Bad{"cards: [{ecc: yes}]", "cards[0].ecc: 'yes' is not legal: true or false"},
        Bad{"cards: [{pcie: {lanes: 16}}]", "unknown field 'cards[0].pcie.lanes'"},
        Bad{"cards: [{pcie: {bus: 1}}, {pcie: {bus: 1}}]", "pcie bus 1 is given twice"},
        Bad{"cards: [{mig: {devices: [{profile: 1g.10gb, memory_mib: 1, sms: 1}]}}]",
            "capable: true"},
        Bad{"cards: [{mig: {capable: true, devices: [{profile: 1g.10gb}]}}]",
            "cards[0].mig.devices[0].memory_mib"},
        Bad{"cards: [{mig: {capable: true, devices: [{profile: big, memory_mib: 1, sms: 1}]}}]",
            "'big' is not legal"},
        Bad{"cards: [{count: 2}]\nlinks: {all: wifi}", "links.all: 'wifi'"},
        Bad{"cards: [{count: 2}]\nlinks: {all: pcie, per_card: 4}", "links.per_card: '4'"},
        Bad{"cards: [{count: 1}]\ndriver: {cuda: thirteen}", "driver.cuda: 'thirteen'"},
        Bad{"cards: [{count: 1}]\ncosts: {pageable_permille: 0}", "costs.pageable_permille: '0'"},
        Bad{"cards: [{name: "
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
            "xxxxxxxxxxxxx}]",
            "cards[0].name"}));

TEST(NodeFile, ThatIsNotThereIsNamed) {
  EXPECT_NE(LoadNode("nope").error().message.find("presets are a100-80"), std::string::npos);
  EXPECT_EQ(LoadNode("/nonexistent/x.yaml").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace tessera::sim
