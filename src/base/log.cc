#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "base/plain_text.h"

namespace tessera::base {
namespace {
std::atomic<bool> g_verbose{false};
}  // namespace

void SetVerbose(bool verbose) { g_verbose = verbose; }
bool Verbose() { return g_verbose; }

void Say(std::string_view text) {
  const std::string line = "tessera: " + Message(text) + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody is left to be told
}

void Waiting(std::string_view what) {
  if (isatty(STDERR_FILENO) == 1) Say("waiting " + std::string(what));
}

void Detail(std::string_view text) {
  if (g_verbose) Say(text);
}

}  // namespace tessera::base
