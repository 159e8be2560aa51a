// From what was typed to what is asked for. Strict: see model/quantity.h for the errors.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "node/store.h"

namespace tessera::node {

// Values as typed; empty = not given.
struct RequestText {
  std::string memory, cores, card, cards, name, priority, policy, on_bypass;
};

// What `from` asks (a pod's container) stands where nothing was typed; without it --mem has to be
// given.
Result<NewSlice> ParseRequest(const RequestText& text, const std::vector<std::string>& command,
                              const model::Request* from = nullptr);

// The values of `tessera limit`; at least one has to be given.
Result<Change> ParseChange(const RequestText& text);

Result<contract::BypassAction> ParseBypass(const std::string& field, const std::string& text);

}  // namespace tessera::node
