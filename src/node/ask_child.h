// Asks something of a driver library in a process apart: whoever asks stays single-threaded and
// free of what the library leaves behind, and a driver that hangs is killed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace tessera::node {

// What `answer` returned in the child. The caller must have a single thread. kUnavailable when the
// child died or said nothing within `wait_ns`; it is gone on return, and when the caller dies. A
// wait of more than 2 s is told to who sits at the terminal.
Result<std::string> AskChild(const std::function<std::string()>& answer, std::int64_t wait_ns);

}  // namespace tessera::node
