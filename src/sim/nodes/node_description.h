// What a node file says, read strictly. See README.md of this folder for the format, *.yaml for
// examples.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sim/state/node_state.h"

namespace tessera::sim {

// `text` of a node file. Errors are one line: field, value, what is legal.
Result<NodeDescription> ParseNode(const std::string& text);

// A preset by name, else a file.
Result<NodeDescription> LoadNode(const std::string& file_or_preset);

std::vector<std::string> PresetNames();

// "GPU-…" text of a UUID.
std::string CardUuidText(const CardSpec& card);
std::string MigUuidText(const MigSpec& mig);

}  // namespace tessera::sim
