// The parts of `--output json` that several subcommands share (docs/formats/cli-json.md).
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "cli/look.h"

namespace tessera::cli {

boost::json::object DriverJson(const watch::Snapshot& snapshot);
boost::json::array CardsJson(const watch::Snapshot& snapshot);
boost::json::array SlicesJson(const watch::Snapshot& snapshot);
boost::json::array ForeignJson(const watch::Snapshot& snapshot);
boost::json::array BrokenJson(const watch::Snapshot& snapshot);
boost::json::array FindingsJson(const std::vector<watch::Finding>& findings);
boost::json::object StateJson(const watch::Snapshot& snapshot);

// {"schema": ..., "state": ..., "driver": ..., "cards": ..., "slices": ..., "foreign": ...,
// "broken": ..., "findings": ...}
boost::json::object ObservedJson(const Observed& observed, std::string_view schema);

// Indented by two, keys in the order they were put in, ends with a newline. What is not printable
// in a text comes out as "?" (base/plain_text.h).
std::string Pretty(const boost::json::value& value);
// The same in one line.
std::string Compact(const boost::json::value& value);

// The word for a kind of held memory: "linear", "context", ...
const char* KindName(std::uint32_t kind);

// What the fence column says: "live", "idle", "hole"; "?" when another user's processes may not be
// looked into.
std::string FenceState(const watch::SliceFacts& slice);

}  // namespace tessera::cli
