#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

namespace tessera::base {
namespace {
std::atomic<bool> g_verbose{false};
}  // namespace

void SetVerbose(bool verbose) { g_verbose = verbose; }
bool Verbose() { return g_verbose; }

void Say(std::string_view text) {
  std::string line = "tessera: " + std::string(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody is left to be told
}

void Detail(std::string_view text) {
  if (g_verbose) Say(text);
}

}  // namespace tessera::base
