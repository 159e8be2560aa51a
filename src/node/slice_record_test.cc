#include "node/slice_record.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace tessera::node {
namespace {

namespace json = boost::json;

json::object Good() {
  SliceRecord record;
  record.slice.id = "0123456789abcdef";
  record.slice.name = "chat";
  model::SliceCard card;
  card.uuid.bytes[0] = 1;
  card.memory_bytes = model::kMib;
  record.slice.cards = {card};
  record.created_s = 1;
  record.launcher = {7, 8};
  return json::parse(RecordText(record)).as_object();
}

Result<SliceRecord> With(const char* field, json::value value) {
  json::object object = Good();
  object[field] = std::move(value);
  return ParseRecord(json::serialize(object));
}

TEST(ParseRecord, TakesWhatItWrites) {
  const Result<SliceRecord> record = ParseRecord(json::serialize(Good()));
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->slice.name, "chat");
  EXPECT_EQ(record->launcher.pid, 7);
}

TEST(ParseRecord, NamesAndIdsAreLegalOrTheRecordIsDamaged) {
  for (const char* field : {"name", "id"}) {
    for (const std::string& text :
         {std::string(), std::string("\x1b[31m"), std::string("a\nvictim 0"), std::string("a b"),
          std::string("\xc2\x9b"), std::string("\xff"), std::string(50'000, 'n'),
          std::string("../x"), std::string(".hidden")}) {
      const Result<SliceRecord> record = With(field, json::string(text));
      ASSERT_FALSE(record) << text;
      EXPECT_EQ(record.error().code, Code::kDataLoss);
      // What is no UTF-8 is no JSON either.
      const char* said = text == "\xff" ? "not a JSON object" : field;
      EXPECT_NE(record.error().message.find(said), std::string::npos) << record.error().message;
      EXPECT_LT(record.error().message.size(), 300u);
    }
  }
}

TEST(ParseRecord, FiguresThatCannotBeAreDamage) {
  EXPECT_FALSE(With("created_s", std::numeric_limits<std::int64_t>::min()));
  EXPECT_FALSE(With("created_s", std::numeric_limits<std::int64_t>::max()));
  EXPECT_FALSE(With("created_ns", -1));
  EXPECT_FALSE(With("launcher", json::object{{"pid", 5000000000}, {"start_ticks", 1}}));
  EXPECT_FALSE(With("launcher", json::object{{"pid", -1}, {"start_ticks", 1}}));
  EXPECT_EQ(With("command", json::string(std::string(9000, 'x')))->command.size(), 512u);
}

}  // namespace
}  // namespace tessera::node
