#include "model/wire/node_register.h"

#include <boost/json.hpp>
#include <set>

#include "base/plain_text.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

namespace json = boost::json;

constexpr char kLegalNuma[] = "a whole number, -1 to 2147483647";
constexpr char kLegalForms[] =
    "a JSON list of cards, or UUID,count,memory,cores,type,numa,health[,index[,mode]] of each, "
    "ended by ':'";

std::string_view View(const json::string& text) { return {text.data(), text.size()}; }

std::string CardAt(std::string_view annotation, std::size_t place) {
  return std::string(annotation) + ": card " + std::to_string(place + 1);
}

// What the types of a RegisteredCard do not say.
Status Check(std::string_view annotation, const std::vector<RegisteredCard>& cards) {
  if (cards.size() > kMaxRegisteredCards) {
    return NotLegal(annotation, std::to_string(cards.size()) + " cards", "at most 1024 cards");
  }
  std::set<std::string_view> ids;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const RegisteredCard& card = cards[i];
    const std::string where = CardAt(annotation, i);
    if (!IsWord(card.id, kMaxIdBytes)) return NotLegal(where + ": id", card.id, kLegalId);
    if (!ids.insert(card.id).second) {
      return NotLegal(where + ": id", card.id, "one that no other card of the node has");
    }
    for (const std::uint32_t number : {card.index, card.count, card.memory_mib, card.cores}) {
      if (number > kMaxCount) return NotLegal(where, std::to_string(number), kLegalCount);
    }
    if (card.numa < -1) return NotLegal(where + ": numa", std::to_string(card.numa), kLegalNuma);
    if (!card.type.empty() && !IsText(card.type, kMaxTextBytes)) {
      return NotLegal(where + ": type", card.type, kLegalText);
    }
    if (!card.mode.empty() && !IsText(card.mode, kMaxTextBytes)) {
      return NotLegal(where + ": mode", card.mode, kLegalText);
    }
    for (const MigProfile& profile : card.mig_profiles) {
      if (!IsText(profile.name, kMaxTextBytes)) {
        return NotLegal(where + ": migProfiles: name", profile.name, kLegalText);
      }
      for (const std::uint32_t number : {profile.memory_mib, profile.cores, profile.slices}) {
        if (number > kMaxCount) return NotLegal(where, std::to_string(number), kLegalCount);
      }
      for (const MigPlacement& placement : profile.placements) {
        for (const std::uint32_t number : {placement.start, placement.size}) {
          if (number > kMaxCount) return NotLegal(where, std::to_string(number), kLegalCount);
        }
      }
    }
  }
  return {};
}

// Reads the fields of one JSON object. A missing one and null are 0, false or empty, as in Go. The
// first that is wrong is kept: ask for it when all are read.
class Fields {
 public:
  Fields(std::string where, const json::value& value)
      : where_(std::move(where)), object_(value.if_object()) {
    if (!object_) Keep("", value, "an object");
  }

  std::int64_t Number(std::string_view key, std::int64_t least, std::string_view legal) {
    const json::value* value = Find(key);
    if (!value) return 0;
    const std::int64_t* number = value->if_int64();
    if (number && *number >= least && *number <= kMaxCount) return *number;
    Keep(key, *value, legal);
    return 0;
  }
  std::uint32_t Count(std::string_view key) {
    return static_cast<std::uint32_t>(Number(key, 0, kLegalCount));
  }
  std::string Text(std::string_view key) {
    const json::value* value = Find(key);
    if (!value) return "";
    if (const json::string* text = value->if_string()) return std::string(View(*text));
    Keep(key, *value, "text");
    return "";
  }
  bool Flag(std::string_view key) {
    const json::value* value = Find(key);
    if (!value) return false;
    if (const bool* flag = value->if_bool()) return *flag;
    Keep(key, *value, "true or false");
    return false;
  }
  const json::array* List(std::string_view key) {
    const json::value* value = Find(key);
    if (!value) return nullptr;
    if (const json::array* list = value->if_array()) return list;
    Keep(key, *value, "a list");
    return nullptr;
  }
  void Adopt(const Fields& inner) {
    if (status_) status_ = inner.status_;
  }
  const std::string& where() const { return where_; }
  const Status& status() const { return status_; }

 private:
  const json::value* Find(std::string_view key) const {
    const json::value* value = object_ ? object_->if_contains(key) : nullptr;
    return value && !value->is_null() ? value : nullptr;
  }
  void Keep(std::string_view key, const json::value& value, std::string_view legal) {
    if (!status_) return;
    const std::string field = key.empty() ? where_ : where_ + ": " + std::string(key);
    const json::string* text = value.if_string();
    status_ = NotLegal(field, text ? std::string(View(*text)) : json::serialize(value), legal);
  }

  std::string where_;
  const json::object* object_;
  Status status_;
};

RegisteredCard ReadCard(Fields& fields) {
  RegisteredCard card;
  card.id = fields.Text("id");
  card.index = fields.Count("index");
  card.count = fields.Count("count");
  card.memory_mib = fields.Count("devmem");
  card.cores = fields.Count("devcore");
  card.type = fields.Text("type");
  card.numa = static_cast<std::int32_t>(fields.Number("numa", -1, kLegalNuma));
  card.mode = fields.Text("mode");
  card.healthy = fields.Flag("health");
  const json::array* profiles = fields.List("migProfiles");
  for (std::size_t i = 0; profiles && i < profiles->size(); ++i) {
    Fields inner(fields.where() + ": migProfiles", (*profiles)[i]);
    MigProfile profile;
    profile.name = inner.Text("name");
    profile.memory_mib = inner.Count("memoryMB");
    profile.cores = inner.Count("core");
    profile.slices = inner.Count("sliceCount");
    const json::array* placements = inner.List("placements");
    for (std::size_t j = 0; placements && j < placements->size(); ++j) {
      Fields place(inner.where() + ": placements", (*placements)[j]);
      const std::uint32_t start = place.Count("start");
      profile.placements.push_back({start, place.Count("size")});
      inner.Adopt(place);
    }
    fields.Adopt(inner);
    card.mig_profiles.push_back(std::move(profile));
  }
  return card;
}

Result<std::vector<RegisteredCard>> ReadJson(std::string_view annotation, std::string_view value) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = 32;
  const json::value root = json::parse(value, error, {}, options);
  if (error) return NotLegal(annotation, value, "JSON, and this is not: " + error.message());
  const json::array* list = root.if_array();
  if (!list) return NotLegal(annotation, value, kLegalForms);
  std::vector<RegisteredCard> cards;
  for (const json::value& entry : *list) {
    Fields fields(CardAt(annotation, cards.size()), entry);
    cards.push_back(ReadCard(fields));
    if (!fields.status()) return Fail(fields.status().error());
  }
  return cards;
}

Result<RegisteredCard> ReadTextCard(const std::string& where, std::string_view text) {
  const std::vector<std::string_view> fields = Split(text, ',');
  if (fields.size() < 7 || fields.size() > 9) {
    return NotLegal(where, text, "UUID,count,memory,cores,type,numa,health[,index[,mode]]");
  }
  RegisteredCard card;
  card.id = fields[0];
  card.type = fields[4];
  card.mode = fields.size() == 9 ? std::string(fields[8]) : "hami-core";
  struct Number {
    const char* name;
    std::size_t field;
    std::uint32_t RegisteredCard::* member;
  };
  for (const Number& number :
       {Number{"count", 1, &RegisteredCard::count},
        Number{"memory", 2, &RegisteredCard::memory_mib},
        Number{"cores", 3, &RegisteredCard::cores}, Number{"index", 7, &RegisteredCard::index}}) {
    if (number.field >= fields.size()) continue;
    const auto read = WholeNumber(fields[number.field], 0, kMaxCount);
    if (!read) return NotLegal(where + ": " + number.name, fields[number.field], kLegalCount);
    card.*number.member = static_cast<std::uint32_t>(*read);
  }
  const auto numa = WholeNumber(fields[5], -1, kMaxCount);
  if (!numa) return NotLegal(where + ": numa", fields[5], kLegalNuma);
  card.numa = static_cast<std::int32_t>(*numa);
  card.healthy = fields[6] == "true";
  if (!card.healthy && fields[6] != "false") {
    return NotLegal(where + ": health", fields[6], "true or false");
  }
  return card;
}

Result<std::vector<RegisteredCard>> ReadText(std::string_view annotation, std::string_view value) {
  std::vector<RegisteredCard> cards;
  for (const std::string_view text : Split(value, ':')) {
    if (text.empty()) continue;
    Result<RegisteredCard> card = ReadTextCard(CardAt(annotation, cards.size()), text);
    if (!card) return Fail(card.error());
    cards.push_back(std::move(*card));
  }
  if (cards.empty()) return NotLegal(annotation, value, kLegalForms);
  return cards;
}

json::array ToJson(const std::vector<MigProfile>& profiles) {
  json::array list;
  for (const MigProfile& profile : profiles) {
    json::array placements;
    for (const MigPlacement& placement : profile.placements) {
      placements.push_back(json::object{{"start", placement.start}, {"size", placement.size}});
    }
    list.push_back(json::object{{"name", profile.name},
                                {"memoryMB", profile.memory_mib},
                                {"core", profile.cores},
                                {"sliceCount", profile.slices},
                                {"placements", std::move(placements)}});
  }
  return list;
}

json::object ToJson(const RegisteredCard& card) {
  json::object object{{"id", card.id}};
  if (card.index != 0) object["index"] = card.index;
  if (card.count != 0) object["count"] = card.count;
  if (card.memory_mib != 0) object["devmem"] = card.memory_mib;
  if (card.cores != 0) object["devcore"] = card.cores;
  if (!card.type.empty()) object["type"] = card.type;
  if (card.numa != 0) object["numa"] = card.numa;
  if (!card.mode.empty()) object["mode"] = card.mode;
  if (!card.mig_profiles.empty()) object["migProfiles"] = ToJson(card.mig_profiles);
  if (card.healthy) object["health"] = true;
  return object;
}

// Go's encoder escapes what HTML would read; outside of strings JSON has none of these.
std::string EscapeAsGo(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "\\u003c";
    } else if (c == '>') {
      escaped += "\\u003e";
    } else if (c == '&') {
      escaped += "\\u0026";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

Result<std::vector<RegisteredCard>> ReadNodeRegister(std::string_view annotation,
                                                     std::string_view value) {
  if (Status size = CheckBytes(annotation, value); !size) return Fail(size.error());
  const std::size_t first = value.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && value[first] == '[';
  Result<std::vector<RegisteredCard>> cards =
      is_json ? ReadJson(annotation, value) : ReadText(annotation, value);
  if (!cards) return cards;
  if (Status legal = Check(annotation, *cards); !legal) return Fail(legal.error());
  return cards;
}

Result<std::string> WriteNodeRegister(std::string_view annotation,
                                      const std::vector<RegisteredCard>& cards) {
  if (Status legal = Check(annotation, cards); !legal) return Fail(legal.error());
  json::array list;
  for (const RegisteredCard& card : cards) list.push_back(ToJson(card));
  std::string value = EscapeAsGo(json::serialize(list));
  if (Status size = CheckBytes(annotation, value); !size) return Fail(size.error());
  return value;
}

}  // namespace tessera::model::wire
