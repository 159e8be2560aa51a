// docs/formats/slice-directory.md names every field of both files, each where the layout has it.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "contract/slice_layout.h"

namespace tessera::contract {
namespace {

struct Field {
  std::string name;
  std::size_t offset, bytes;
};
struct Record {
  std::string name;
  std::size_t bytes;
  std::vector<Field> fields;
};

#define FIELD(record, field) {#field, offsetof(record, field), sizeof(record::field)}

const std::vector<Record>& Records() {
  static const std::vector<Record> records = {
      {"PolicyFile",
       sizeof(PolicyFile),
       {FIELD(PolicyFile, header), FIELD(PolicyFile, cards), FIELD(PolicyFile, gates)}},
      {"PolicyHeader",
       sizeof(PolicyHeader),
       {FIELD(PolicyHeader, magic), FIELD(PolicyHeader, layout), FIELD(PolicyHeader, file_bytes),
        FIELD(PolicyHeader, cards_offset), FIELD(PolicyHeader, card_stride),
        FIELD(PolicyHeader, card_count), FIELD(PolicyHeader, gates_offset),
        FIELD(PolicyHeader, gate_stride), FIELD(PolicyHeader, flags),
        FIELD(PolicyHeader, generation), FIELD(PolicyHeader, heartbeat_ns),
        FIELD(PolicyHeader, core_policy), FIELD(PolicyHeader, bypass_action),
        FIELD(PolicyHeader, slice_id), FIELD(PolicyHeader, slice_name)}},
      {"PolicyCard",
       sizeof(PolicyCard),
       {FIELD(PolicyCard, uuid), FIELD(PolicyCard, limit_bytes), FIELD(PolicyCard, ceiling_bytes),
        FIELD(PolicyCard, physical_bytes), FIELD(PolicyCard, compute_percent),
        FIELD(PolicyCard, priority), FIELD(PolicyCard, flags), FIELD(PolicyCard, pci_domain),
        FIELD(PolicyCard, pci_bus), FIELD(PolicyCard, pci_device),
        FIELD(PolicyCard, context_bytes)}},
      {"PolicyGate", sizeof(PolicyGate), {FIELD(PolicyGate, word)}},
      {"LedgerFile",
       sizeof(LedgerFile),
       {FIELD(LedgerFile, header), FIELD(LedgerFile, cards), FIELD(LedgerFile, slots)}},
      {"LedgerHeader",
       sizeof(LedgerHeader),
       {FIELD(LedgerHeader, magic), FIELD(LedgerHeader, layout), FIELD(LedgerHeader, file_bytes),
        FIELD(LedgerHeader, cards_offset), FIELD(LedgerHeader, card_stride),
        FIELD(LedgerHeader, card_count), FIELD(LedgerHeader, slots_offset),
        FIELD(LedgerHeader, slot_stride), FIELD(LedgerHeader, slot_count),
        FIELD(LedgerHeader, kinds), FIELD(LedgerHeader, slots_refused),
        FIELD(LedgerHeader, slots_high), FIELD(LedgerHeader, last_sweep_ns)}},
      {"LedgerCard",
       sizeof(LedgerCard),
       {FIELD(LedgerCard, total), FIELD(LedgerCard, peak_bytes), FIELD(LedgerCard, denied_count),
        FIELD(LedgerCard, denied_bytes), FIELD(LedgerCard, recount_wanted),
        FIELD(LedgerCard, card_key), FIELD(LedgerCard, context_bytes)}},
      {"LedgerSlot",
       sizeof(LedgerSlot),
       {FIELD(LedgerSlot, owner), FIELD(LedgerSlot, pid_namespace), FIELD(LedgerSlot, stack_start),
        FIELD(LedgerSlot, host_pid), FIELD(LedgerSlot, hooks_active), FIELD(LedgerSlot, build_id),
        FIELD(LedgerSlot, command), FIELD(LedgerSlot, image_random), FIELD(LedgerSlot, life_lock),
        FIELD(LedgerSlot, time_namespace), FIELD(LedgerSlot, work), FIELD(LedgerSlot, cards)}},
      {"SlotWork", sizeof(SlotWork), {FIELD(SlotWork, launched), FIELD(SlotWork, completed)}},
      {"SlotCard", sizeof(SlotCard), {FIELD(SlotCard, held)}},
  };
  return records;
}

#undef FIELD

std::string Line(std::size_t offset, std::size_t bytes, const std::string& name) {
  return std::to_string(offset) + " " + std::to_string(bytes) + " " + name + "\n";
}

// The tables of the page by the name before them: "`PolicyCard`, 256 bytes:".
std::map<std::string, std::string> Page() {
  std::map<std::string, std::string> tables;
  std::ifstream page(SLICE_DIRECTORY_PAGE);
  std::string table = "no table";
  for (std::string line; std::getline(page, line);) {
    char name[64] = {};
    std::size_t offset = 0, bytes = 0;
    if (std::sscanf(line.c_str(), "`%63[A-Za-z]`, %zu bytes:", name, &bytes) == 2 &&
        line.ends_with("bytes:")) {
      table = name;
      tables[table] = Line(0, bytes, name);
    } else if (std::sscanf(line.c_str(), "| %zu | %zu | `%63[a-z_]`", &offset, &bytes, name) == 3) {
      tables[table] += Line(offset, bytes, name);
    } else if (!line.empty() && line[0] != '|') {
      table = "no table";
    }
  }
  return tables;
}

TEST(LayoutPage, NamesEveryFieldWhereItIs) {
  const std::map<std::string, std::string> page = Page();
  EXPECT_EQ(page.size(), Records().size()) << "tables of the page";
  for (const Record& record : Records()) {
    std::string layout = Line(0, record.bytes, record.name);
    for (const Field& field : record.fields) layout += Line(field.offset, field.bytes, field.name);
    const auto table = page.find(record.name);
    EXPECT_EQ(table == page.end() ? "" : table->second, layout) << record.name;
  }
}

// A field that this test does not list would be missing on the page unseen: what is not listed is
// reserved, and reserved bytes are the only holes.
TEST(LayoutPage, ListsAllThatIsNotReserved) {
  const std::map<std::string, std::size_t> reserved = {
      {"PolicyFile", 0},
      {"PolicyHeader", sizeof(PolicyHeader::reserved)},
      {"PolicyCard", sizeof(PolicyCard::reserved)},
      {"PolicyGate", sizeof(PolicyGate::reserved) + sizeof(PolicyGate::reserved32)},
      {"LedgerFile", sizeof(LedgerFile::reserved)},
      {"LedgerHeader", sizeof(LedgerHeader::reserved) + sizeof(LedgerHeader::reserved32)},
      {"LedgerCard", sizeof(LedgerCard::reserved)},
      {"LedgerSlot", sizeof(LedgerSlot::reserved) + sizeof(LedgerSlot::reserved32)},
      {"SlotWork", 0},
      {"SlotCard", 0},
  };
  for (const Record& record : Records()) {
    std::size_t sum = reserved.at(record.name);
    for (const Field& field : record.fields) sum += field.bytes;
    EXPECT_EQ(sum, record.bytes) << record.name;
  }
}

}  // namespace
}  // namespace tessera::contract
