#include "sim/nodes/yaml_fields.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

namespace tessera::sim {
namespace {

std::string Join(std::initializer_list<std::string_view> names) {
  std::string text;
  for (std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// Decimal or 0x; the whole text.
bool ReadNumber(const std::string& text, std::uint64_t* value) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const char* begin = text.data() + (hex ? 2 : 0);
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(begin, end, *value, hex ? 16 : 10);
  return begin != end && read.ec == std::errc{} && read.ptr == end;
}

}  // namespace

Fields::Fields(const YAML::Node& node, std::string path) : node_(node), path_(std::move(path)) {}

std::string Fields::PathOf(const std::string& field) const {
  return path_.empty() ? field : path_ + "." + field;
}

void Fields::Refuse(const std::string& field, const std::string& value, const std::string& legal) {
  if (!status_) return;
  status_ =
      Fail(Code::kInvalidArgument, PathOf(field) + ": '" + value + "' is not legal: " + legal);
}

void Fields::Take(const Status& status) {
  if (status_ && !status) status_ = status;
}

void Fields::Allow(std::initializer_list<std::string_view> known) {
  if (!node_.IsMap()) {
    if (status_) {
      status_ = Fail(Code::kInvalidArgument,
                     (path_.empty() ? "the file" : path_) + " must be a map of: " + Join(known));
    }
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      if (status_)
        status_ = Fail(Code::kInvalidArgument,
                       "unknown field '" + PathOf(key) + "': legal are " + Join(known));
    } else if (!seen.insert(key).second) {
      if (status_) status_ = Fail(Code::kInvalidArgument, PathOf(key) + ": given twice");
    }
  }
}

bool Fields::Has(const char* field) const {
  return node_.IsMap() && node_[field].IsDefined() && !node_[field].IsNull();
}
YAML::Node Fields::Child(const char* field) const { return node_[field]; }

std::string Fields::Scalar(const char* field, const char* legal) {
  if (!status_ || !node_.IsMap() || !node_[field].IsDefined()) return "";
  if (node_[field].IsScalar()) return node_[field].Scalar();
  Refuse(field, node_[field].IsNull() ? "" : "…", legal);
  return "";
}

void Fields::Number(const char* field, std::uint64_t least, std::uint64_t most,
                    std::uint64_t* value) {
  if (!status_ || !node_.IsMap() || !node_[field].IsDefined()) return;
  const std::string legal =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  const std::string text = Scalar(field, legal.c_str());
  std::uint64_t number = 0;
  if (!status_) return;
  if (!ReadNumber(text, &number) || number < least || number > most) {
    Refuse(field, text, legal);
  } else {
    *value = number;
  }
}

void Fields::Number(const char* field, std::uint64_t least, std::uint64_t most,
                    std::uint32_t* value) {
  std::uint64_t number = *value;
  Number(field, least, most, &number);
  *value = static_cast<std::uint32_t>(number);
}

void Fields::Flag(const char* field, std::uint32_t* value) {
  if (!status_ || !node_.IsMap() || !node_[field].IsDefined()) return;
  const std::string text = Scalar(field, "true or false");
  if (!status_) return;
  if (text != "true" && text != "false") {
    Refuse(field, text, "true or false");
  } else {
    *value = text == "true" ? 1 : 0;
  }
}

void Fields::Text(const char* field, char* to, std::size_t room) {
  if (!status_ || !node_.IsMap() || !node_[field].IsDefined()) return;
  const std::string legal = "a text of at most " + std::to_string(room - 1) + " bytes";
  const std::string text = Scalar(field, legal.c_str());
  if (!status_) return;
  if (text.size() >= room || text.find('\0') != text.npos) {
    Refuse(field, text, legal);
  } else {
    std::memset(to, 0, room);
    std::memcpy(to, text.data(), text.size());
  }
}

}  // namespace tessera::sim
