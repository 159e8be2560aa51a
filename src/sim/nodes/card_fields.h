// What a node file says of one card.
#pragma once

#include <string>

#include "sim/nodes/yaml_fields.h"
#include "sim/state/node_state.h"

namespace tessera::sim {

// Changes what the map names; `count` and `preset` are the caller's.
Status ReadCard(const YAML::Node& node, const std::string& path, CardSpec* card);

// "8.6": two numbers, the second of one digit.
void ReadPair(Fields& fields, const char* field, std::uint32_t most, std::uint32_t* first,
              std::uint32_t* second);

}  // namespace tessera::sim
