#include "node/slice_record.h"

#include <boost/json.hpp>

#include "base/files.h"
#include "model/quantity.h"

namespace tessera::node {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostCommand = 512;

const char* FencingText(Fencing fencing) {
  return fencing == Fencing::kNamespace ? "namespace" : "environment";
}

const char* BypassText(contract::BypassAction action) {
  switch (action) {
    case contract::BypassAction::kPause:
      return "pause";
    case contract::BypassAction::kKill:
      return "kill";
    default:
      return "report";
  }
}

// Another user's text, which stands in tables, messages and commands of everybody.
std::string CheckedName(const json::object& object, const char* field) {
  std::string name = json::value_to<std::string>(object.at(field));
  if (Status legal = model::CheckName(field, name); !legal)
    throw std::invalid_argument(legal.error().message);
  return name;
}

std::int64_t CheckedTime(const json::object& object, const char* field) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;  // differences of two do not overflow
  const auto time = json::value_to<std::int64_t>(object.at(field));
  if (time < 0 || time > kMost) throw std::out_of_range(field);
  return time;
}

// Throws on anything that is missing or of another type; ParseRecord catches.
SliceRecord FromJson(const json::object& object) {
  SliceRecord record;
  record.slice.id = CheckedName(object, "id");
  record.slice.name = CheckedName(object, "name");
  record.slice.priority =
      object.at("priority").as_string() == "high" ? model::Priority::kHigh : model::Priority::kLow;
  for (const json::value& value : object.at("cards").as_array()) {
    const json::object& card = value.as_object();
    std::optional<model::Uuid> uuid =
        model::ParseUuid(json::value_to<std::string>(card.at("uuid")));
    if (!uuid) throw std::invalid_argument("uuid");
    model::SliceCard out;
    out.uuid = *uuid;
    out.memory_bytes = json::value_to<std::uint64_t>(card.at("memory_bytes"));
    out.cores = json::value_to<std::uint32_t>(card.at("cores"));
    if (out.memory_bytes > model::kMaxMemory || out.cores > 100) throw std::out_of_range("promise");
    record.slice.cards.push_back(out);
    const json::value* most = card.if_contains("most_bytes");
    record.most_bytes.push_back(most ? json::value_to<std::uint64_t>(*most) : out.memory_bytes);
    if (record.most_bytes.back() > model::kMaxMemory) throw std::out_of_range("most_bytes");
  }
  if (record.slice.cards.empty() || record.slice.cards.size() > contract::kMaxCards)
    throw std::out_of_range("cards");
  record.command = json::value_to<std::string>(object.at("command")).substr(0, kMostCommand);
  record.created_s = CheckedTime(object, "created_s");
  record.created_ns = CheckedTime(object, "created_ns");
  const json::object& launcher = object.at("launcher").as_object();
  record.launcher.pid = json::value_to<pid_t>(launcher.at("pid"));
  if (record.launcher.pid < 0) throw std::out_of_range("launcher.pid");
  record.launcher.start_ticks = json::value_to<std::uint64_t>(launcher.at("start_ticks"));
  record.mount_namespace = json::value_to<std::uint64_t>(object.at("mount_namespace"));
  record.pid_namespace = json::value_to<std::uint64_t>(object.at("pid_namespace"));
  if (const json::value* user = object.if_contains("user_namespace"); user != nullptr) {
    record.user_namespace = json::value_to<std::uint64_t>(*user);
  }
  record.boot_id = json::value_to<std::string>(object.at("boot_id"));
  record.fencing =
      object.at("fencing").as_string() == "namespace" ? Fencing::kNamespace : Fencing::kEnvironment;
  const json::string& bypass = object.at("bypass").as_string();
  record.bypass = bypass == "kill"    ? contract::BypassAction::kKill
                  : bypass == "pause" ? contract::BypassAction::kPause
                                      : contract::BypassAction::kReport;
  return record;
}

}  // namespace

std::string RecordText(const SliceRecord& record) {
  json::array cards;
  for (std::size_t i = 0; i < record.slice.cards.size(); ++i) {
    const model::SliceCard& card = record.slice.cards[i];
    cards.push_back(json::object{{"uuid", ToString(card.uuid)},
                                 {"memory_bytes", card.memory_bytes},
                                 {"most_bytes", record.MostBytes(i)},
                                 {"cores", card.cores}});
  }
  json::object object{
      {"layout", kRecordLayout},
      {"id", record.slice.id},
      {"name", record.slice.name},
      {"priority", model::ToString(record.slice.priority)},
      {"cards", std::move(cards)},
      {"command", record.command.substr(0, kMostCommand)},
      {"created_s", record.created_s},
      {"created_ns", record.created_ns},
      {"launcher",
       json::object{{"pid", record.launcher.pid}, {"start_ticks", record.launcher.start_ticks}}},
      {"mount_namespace", record.mount_namespace},
      {"user_namespace", record.user_namespace},
      {"pid_namespace", record.pid_namespace},
      {"boot_id", record.boot_id},
      {"fencing", FencingText(record.fencing)},
      {"bypass", BypassText(record.bypass)},
  };
  return json::serialize(object) + "\n";
}

Result<SliceRecord> ParseRecord(const std::string& text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) return Fail(Code::kDataLoss, "not a JSON object");
  const json::object& object = value.as_object();
  const json::value* layout = object.if_contains("layout");
  if (layout == nullptr || !layout->is_int64() || layout->as_int64() < 1) {
    return Fail(Code::kDataLoss, "no layout number");
  }
  if (layout->as_int64() != kRecordLayout) {
    return Fail(Code::kUnimplemented, "layout " + std::to_string(layout->as_int64()) +
                                          ", this tessera reads layout " +
                                          std::to_string(kRecordLayout));
  }
  try {
    return FromJson(object);
  } catch (const std::exception& damaged) {
    return Fail(Code::kDataLoss, std::string("a field is missing or not legal: ") + damaged.what());
  }
}

std::string BootId() {
  Result<std::string> id = base::ReadKernelFile("/proc/sys/kernel/random/boot_id", 64);
  if (!id) return "";
  while (!id->empty() && id->back() == '\n') id->pop_back();
  return *id;
}

}  // namespace tessera::node
