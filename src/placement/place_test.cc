// Runs the cases of tests/data/placement; what a case says stands there.
#include "placement/place.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <filesystem>
#include <random>

namespace tessera::placement {
namespace {

model::Uuid UuidOf(int index) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012d", index);
  return *model::ParseUuid(text);
}

model::Node NodeOf(const YAML::Node& cards) {
  model::Node node;
  for (const YAML::Node& from : cards) {
    model::Card card;
    card.index = static_cast<int>(node.cards.size());
    card.uuid = UuidOf(card.index);
    card.memory_bytes = from["mem"].as<std::uint64_t>() * model::kMib;
    card.mig_enabled = from["mig"].as<bool>(false);
    card.unhealthy_reason = from["lost"].as<std::string>("");
    card.healthy = card.unhealthy_reason.empty();
    node.cards.push_back(card);
  }
  return node;
}

Promises PromisesOf(const YAML::Node& slices) {
  Promises promises;
  for (const YAML::Node& from : slices) {
    model::Slice slice;
    slice.id = std::to_string(promises.size());
    std::vector<int> cards = from["card"].IsSequence() ? from["card"].as<std::vector<int>>()
                                                       : std::vector<int>{from["card"].as<int>()};
    for (int card : cards) {
      slice.cards.push_back({UuidOf(card), from["mem"].as<std::uint64_t>() * model::kMib,
                             from["cores"].as<std::uint32_t>(0)});
    }
    promises.push_back(slice);
  }
  return promises;
}

model::Request RequestOf(const YAML::Node& from) {
  model::Request request;
  if (from["mem"]) request.memory_bytes = from["mem"].as<std::uint64_t>() * model::kMib;
  if (from["percent"]) request.memory_percent = from["percent"].as<std::uint32_t>();
  request.cores = from["cores"].as<std::uint32_t>(0);
  request.card_count = from["cards"].as<std::uint32_t>(1);
  request.only_cards = from["only"].as<std::vector<std::string>>(std::vector<std::string>{});
  if (from["policy"])
    request.policy = *model::ParsePolicy("policy", from["policy"].as<std::string>());
  return request;
}

class PlacementCase : public testing::TestWithParam<std::string> {};

TEST_P(PlacementCase, ComesOutAsWritten) {
  for (const YAML::Node& c : YAML::LoadAllFromFile(GetParam())) {
    SCOPED_TRACE(c["name"].as<std::string>());
    Placement placement =
        Place(NodeOf(c["cards"]), PromisesOf(c["slices"]), RequestOf(c["request"]));
    const YAML::Node expect = c["expect"];
    std::vector<model::Uuid> chosen, wanted;
    std::vector<std::uint64_t> mib;
    for (const model::SliceCard& card : placement.chosen) {
      chosen.push_back(card.uuid);
      mib.push_back(card.memory_bytes / model::kMib);
    }
    for (int index : expect["cards"].as<std::vector<int>>(std::vector<int>{}))
      wanted.push_back(UuidOf(index));
    EXPECT_EQ(chosen, wanted) << placement.refusal;
    if (expect["mem"]) {
      EXPECT_EQ(mib, expect["mem"].as<std::vector<std::uint64_t>>());
    }
    std::string refusal =
        expect["wrong"] ? expect["wrong"].as<std::string>() : expect["refused"].as<std::string>("");
    EXPECT_EQ(placement.refusal, refusal);
    EXPECT_EQ(placement.asked_wrongly, expect["wrong"].IsDefined());
  }
}

std::vector<std::string> CaseFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_PLACEMENT_CASES))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Data, PlacementCase, testing::ValuesIn(CaseFiles()), [](const auto& info) {
  return std::filesystem::path(info.param).stem().string();
});

// Whatever is asked in whatever order: no card is promised beyond its memory or its cores, and what
// is promised whole is alone.
TEST(Placement, NeverPromisesMoreThanTheCard) {
  std::mt19937 random(20260927);
  auto pick = [&random](std::uint32_t most) { return random() % (most + 1); };
  for (int round = 0; round < 300; ++round) {
    model::Node node;
    for (std::uint32_t i = 0; i <= pick(7); ++i) {
      model::Card card;
      card.index = static_cast<int>(i);
      card.uuid = UuidOf(card.index);
      card.memory_bytes = (1 + pick(80'000)) * model::kMib;
      node.cards.push_back(card);
    }
    Promises promises;
    for (int step = 0; step < 60; ++step) {
      model::Request request;
      request.memory_bytes = (1 + pick(20'000)) * model::kMib;
      request.cores = pick(3) == 0 ? pick(100) : 0;
      request.card_count = 1 + pick(2);
      request.policy = pick(1) == 0 ? model::Policy::kBinpack : model::Policy::kSpread;
      Placement placement = Place(node, promises, request);
      if (placement.chosen.empty()) {
        EXPECT_FALSE(placement.refusal.empty());
        if (!promises.empty() && pick(1) == 0)
          promises.erase(promises.begin() + static_cast<std::ptrdiff_t>(pick(
                                                static_cast<std::uint32_t>(promises.size() - 1))));
        continue;
      }
      EXPECT_EQ(placement.chosen.size(), request.card_count);
      model::Slice slice;
      slice.id = std::to_string(step);
      slice.cards = placement.chosen;
      promises.push_back(slice);
    }
    for (const model::Card& card : node.cards) {
      std::uint64_t bytes = 0;
      std::uint32_t cores = 0, slices = 0;
      for (const model::Slice& slice : promises) {
        for (const model::SliceCard& promised : slice.cards) {
          if (promised.uuid != card.uuid) continue;
          bytes += promised.memory_bytes;
          cores += promised.cores;
          ++slices;
        }
      }
      EXPECT_LE(bytes, card.memory_bytes);
      EXPECT_LE(cores, 100u);
    }
  }
}

TEST(Resize, LeavesTheSliceItselfOut) {
  model::Node node;
  node.cards.push_back({});
  node.cards[0].uuid = UuidOf(0);
  node.cards[0].memory_bytes = 16000 * model::kMib;
  model::Slice mine{"mine", "mine", {{UuidOf(0), 8000 * model::kMib, 0}}, model::Priority::kLow};
  model::Slice other{"other", "other", {{UuidOf(0), 4000 * model::kMib, 0}}, model::Priority::kLow};
  EXPECT_TRUE(Resize(node, {mine, other}, mine, UuidOf(0), 12000 * model::kMib, 0).fits);
  CardVerdict refused = Resize(node, {mine, other}, mine, UuidOf(0), 12001 * model::kMib, 0);
  EXPECT_FALSE(refused.fits);
  EXPECT_EQ(refused.free_bytes, 12000 * model::kMib);
  EXPECT_FALSE(Resize(node, {mine}, mine, UuidOf(5), 1 * model::kMib, 0).fits)
      << "the card is gone";
}

}  // namespace
}  // namespace tessera::placement
