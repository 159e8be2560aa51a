// Runs a program and waits for what it prints; for credential plugins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tessera::kube {

struct Command {
  std::vector<std::string> words;  // words[0] without a slash is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::int64_t timeout_ns = 60'000'000'000;
  std::size_t max_output = 1u << 20;  // bytes of each stream that are kept
};

struct CommandOutput {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string out, err;
};

// stdin is /dev/null; no descriptor of ours is inherited; the program gets a process group of its
// own, which is killed as a whole when the time is over (kDeadlineExceeded), when `stop` is asked
// for (kCancelled) or when it prints more than max_output (kResourceExhausted). kUnavailable: it
// could not be started.
Result<CommandOutput> RunCommand(const Command& command, std::stop_token stop);

}  // namespace tessera::kube
