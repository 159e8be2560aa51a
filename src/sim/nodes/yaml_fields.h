// Strict reading of one YAML map: every key known, none twice, every value legal; the first error
// names field and value and says what is legal.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::sim {

class Fields {
 public:
  // `path` is what errors call the map: "cards[0].pcie", "" for the file.
  Fields(const YAML::Node& node, std::string path);

  // The map is one, its keys are among `known`, each there once.
  void Allow(std::initializer_list<std::string_view> known);

  // Leave `value` alone where the field is missing or an earlier error stands.
  void Number(const char* field, std::uint64_t least, std::uint64_t most, std::uint64_t* value);
  void Number(const char* field, std::uint64_t least, std::uint64_t most, std::uint32_t* value);
  void Flag(const char* field, std::uint32_t* value);
  void Text(const char* field, char* to, std::size_t room);

  YAML::Node Child(const char* field) const;
  std::string PathOf(const std::string& field) const;
  bool Has(const char* field) const;

  void Refuse(const std::string& field, const std::string& value, const std::string& legal);
  void Take(const Status& status);  // an error of something read below
  const Status& status() const { return status_; }

 private:
  std::string Scalar(const char* field, const char* legal);

  YAML::Node node_;
  std::string path_;
  Status status_;
};

}  // namespace tessera::sim
