#include "contract/policy_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

namespace tessera::contract {
namespace {

std::unique_ptr<PolicyFile> NewPolicy() {
  auto file = std::make_unique<PolicyFile>();
  PolicyHeader& h = file->header;
  h.magic = kPolicyMagic;
  h.layout = kPolicyLayout;
  h.file_bytes = sizeof(PolicyFile);
  h.cards_offset = offsetof(PolicyFile, cards);
  h.card_stride = sizeof(PolicyCard);
  h.card_count = 2;
  h.gates_offset = offsetof(PolicyFile, gates);
  h.gate_stride = sizeof(PolicyGate);
  std::strcpy(h.slice_id, "one");
  for (int i : {0, 1}) {
    PolicyCard& card = file->cards[i];
    card.uuid[0] = static_cast<std::uint8_t>(i + 1);
    card.limit_bytes = 8000ull << 20;
    card.ceiling_bytes = 10000ull << 20;
    card.compute_percent = 30;
  }
  return file;
}

TEST(PolicyView, OpensAValidPolicy) {
  const auto file = NewPolicy();
  PolicyView view;
  EXPECT_EQ(OpenPolicy(file.get(), sizeof *file, &view).field, nullptr);
  EXPECT_EQ(view.card_count(), 2u);
  EXPECT_EQ(view.LimitBytes(1), 8000ull << 20);
  EXPECT_TRUE(IsValid(*file));
}

TEST(PolicyView, ALimitAboveTheCeilingIsCutToIt) {
  const auto file = NewPolicy();
  PolicyView view;
  ASSERT_EQ(OpenPolicy(file.get(), sizeof *file, &view).field, nullptr);
  file->cards[0].limit_bytes = UINT64_MAX;
  EXPECT_EQ(view.LimitBytes(0), 10000ull << 20);
}

TEST(PolicyView, NamesTheFieldThatIsWrong) {
  struct Case {
    const char* field;
    std::function<void(PolicyFile&)> spoil;
  };
  const Case cases[] = {
      {"magic", [](PolicyFile& f) { f.header.magic = 0; }},
      {"layout", [](PolicyFile& f) { f.header.layout = 2; }},
      {"file_bytes", [](PolicyFile& f) { f.header.file_bytes = sizeof f + 1; }},
      {"card_count", [](PolicyFile& f) { f.header.card_count = 0; }},
      {"card_count", [](PolicyFile& f) { f.header.card_count = 17; }},
      {"card_stride", [](PolicyFile& f) { f.header.card_stride = 128; }},
      {"cards_offset", [](PolicyFile& f) { f.header.cards_offset = 0xffffffc0; }},
      {"gates_offset", [](PolicyFile& f) { f.header.gates_offset = 512; }},
      {"gates_offset", [](PolicyFile& f) { f.header.gate_stride = 0xffffffc0; }},
      {"core_policy", [](PolicyFile& f) { f.header.core_policy = 3; }},
      {"bypass_action", [](PolicyFile& f) { f.header.bypass_action = 3; }},
      {"slice_id", [](PolicyFile& f) { std::memset(f.header.slice_id, 'x', 64); }},
      {"slice_name", [](PolicyFile& f) { std::memset(f.header.slice_name, 'x', 64); }},
      {"uuid", [](PolicyFile& f) { f.cards[1].uuid[0] = 0; }},
      {"uuid", [](PolicyFile& f) { f.cards[1].uuid[0] = 1; }},
      {"limit_bytes", [](PolicyFile& f) { f.cards[1].limit_bytes = 0; }},
      {"limit_bytes", [](PolicyFile& f) { f.cards[1].limit_bytes = 1ull << 40; }},
      {"ceiling_bytes", [](PolicyFile& f) { f.cards[0].ceiling_bytes = 1ull << 48; }},
      {"compute_percent", [](PolicyFile& f) { f.cards[0].compute_percent = 0; }},
      {"compute_percent", [](PolicyFile& f) { f.cards[0].compute_percent = 101; }},
      {"priority", [](PolicyFile& f) { f.cards[0].priority = 2; }},
  };
  for (const Case& c : cases) {
    const auto file = NewPolicy();
    c.spoil(*file);
    PolicyView view;
    const LayoutFault fault = OpenPolicy(file.get(), sizeof *file, &view);
    ASSERT_NE(fault.field, nullptr) << c.field;
    EXPECT_STREQ(fault.field, c.field);
    EXPECT_NE(fault.legal, nullptr);
    EXPECT_FALSE(view.ok());
    EXPECT_FALSE(IsValid(*file));
  }
}

TEST(PolicyView, ATruncatedFileIsRefused) {
  const auto file = NewPolicy();
  PolicyView view;
  for (std::size_t size = 0; size < sizeof *file; size += 61) {
    EXPECT_NE(OpenPolicy(file.get(), size, &view).field, nullptr) << size;
  }
}

}  // namespace
}  // namespace tessera::contract
