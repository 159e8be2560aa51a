#include "contract/ledger_view.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "contract/ledger_ops.h"

namespace tessera::contract {
namespace {

std::unique_ptr<LedgerFile> NewLedger() {
  auto file = std::make_unique<LedgerFile>();
  InitLedger(*file);
  return file;
}

TEST(LedgerView, OpensWhatInitLedgerWrote) {
  const auto file = NewLedger();
  LedgerView view;
  EXPECT_EQ(OpenLedger(file.get(), sizeof *file, &view).field, nullptr);
  EXPECT_EQ(view.slot_count(), kMaxSlots);
  EXPECT_EQ(&view.Slot(kMaxSlots - 1), &file->slots[kMaxSlots - 1]);
  EXPECT_EQ(&view.Card(15), &file->cards[15]);
  EXPECT_TRUE(IsValid(view));
}

TEST(LedgerView, NamesTheFieldThatIsWrong) {
  struct Case {
    const char* field;
    std::function<void(LedgerHeader&)> spoil;
  };
  const Case cases[] = {
      {"magic", [](LedgerHeader& h) { h.magic ^= 1; }},
      {"layout", [](LedgerHeader& h) { h.layout = 2; }},
      {"file_bytes", [](LedgerHeader& h) { h.file_bytes = sizeof(LedgerFile) + 1; }},
      {"card_count", [](LedgerHeader& h) { h.card_count = 0; }},
      {"card_count", [](LedgerHeader& h) { h.card_count = 17; }},
      {"kinds", [](LedgerHeader& h) { h.kinds = 9; }},
      {"slot_count", [](LedgerHeader& h) { h.slot_count = kMaxSlots + 1; }},
      {"card_stride", [](LedgerHeader& h) { h.card_stride = 64; }},
      {"card_stride", [](LedgerHeader& h) { h.card_stride = 129; }},
      {"slot_stride", [](LedgerHeader& h) { h.slot_stride = 1535; }},
      {"cards_offset", [](LedgerHeader& h) { h.cards_offset = 0; }},
      {"cards_offset", [](LedgerHeader& h) { h.cards_offset = 0xffffffc0; }},
      {"slots_offset", [](LedgerHeader& h) { h.slots_offset = 512; }},
      {"slots_offset", [](LedgerHeader& h) { h.slots_offset = 0xffffffc0; }},
      {"slots_offset", [](LedgerHeader& h) { h.slot_stride = 0xffffffc0; }},
  };
  for (const Case& c : cases) {
    const auto file = NewLedger();
    c.spoil(file->header);
    LedgerView view;
    const LayoutFault fault = OpenLedger(file.get(), sizeof *file, &view);
    ASSERT_NE(fault.field, nullptr) << c.field;
    EXPECT_STREQ(fault.field, c.field);
    EXPECT_NE(fault.legal, nullptr);
    EXPECT_FALSE(view.ok());
  }
}

TEST(LedgerView, ATruncatedFileIsRefused) {
  const auto file = NewLedger();
  LedgerView view;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{511}, std::size_t{8192}, sizeof(LedgerFile) - 1}) {
    EXPECT_NE(OpenLedger(file.get(), size, &view).field, nullptr) << size;
  }
  EXPECT_NE(OpenLedger(nullptr, sizeof *file, &view).field, nullptr);
}

TEST(LedgerView, AFileOfANewerWriterWithLargerRecordsIsRead) {
  alignas(64) static std::byte memory[64 << 10] = {};
  LedgerHeader& h = *reinterpret_cast<LedgerHeader*>(memory);
  h = {.magic = kLedgerMagic,
       .layout = 1,
       .file_bytes = 512 + 2 * 192 + 4 * 2048,
       .cards_offset = 512,
       .card_stride = 192,
       .card_count = 2,
       .slots_offset = 896,
       .slot_stride = 2048,
       .slot_count = 4,
       .kinds = kKinds};
  LedgerView view;
  ASSERT_EQ(OpenLedger(memory, sizeof memory, &view).field, nullptr);
  EXPECT_EQ(reinterpret_cast<std::byte*>(&view.Slot(3)), memory + 896 + 3 * 2048);
}

TEST(LedgerView, AForgedLedgerNeverLeadsTooFar) {
  const auto file = NewLedger();
  LedgerView view;
  OpenLedger(file.get(), sizeof *file, &view);
  file->header.slots_high = UINT64_MAX;
  file->header.slot_count = UINT32_MAX;
  EXPECT_EQ(view.SlotsInUse(), kMaxSlots);
  for (LedgerSlot& slot : file->slots) {
    slot.owner = MakeOwner(1, 1, SlotState::kLive);
    for (std::uint64_t& word : slot.cards[0].held) word = UINT64_MAX;
  }
  EXPECT_EQ(SumLive(view, 0, [](const LedgerSlot&, std::uint64_t) { return true; }), kMaxBytes);
  EXPECT_FALSE(Recount(view, 0));
  EXPECT_FALSE(IsValid(view));
}

}  // namespace
}  // namespace tessera::contract
