#include "node/request_text.h"

#include <algorithm>

#include "base/plain_text.h"

namespace tessera::node {
namespace {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    std::size_t end = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

// Whether the machine has such cards is for placement to say.
Result<std::vector<std::string>> ParseCards(const std::string& field, const std::string& text) {
  std::vector<std::string> parts = SplitAtCommas(text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() ||
        std::find(parts.begin(), parts.begin() + i, parts[i]) != parts.begin() + i) {
      return Fail(Code::kInvalidArgument,
                  field + ": '" + base::Shown(text) +
                      "' is not legal: indices or UUIDs with a comma between, each of them once");
    }
  }
  return parts;
}

std::string Joined(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 512;  // as much of a command as people read
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
    if (text.size() > kMost) break;
  }
  return text.substr(0, kMost);
}

}  // namespace

Result<contract::BypassAction> ParseBypass(const std::string& field, const std::string& text) {
  if (text == "report") return contract::BypassAction::kReport;
  if (text == "pause") return contract::BypassAction::kPause;
  if (text == "kill") return contract::BypassAction::kKill;
  return Fail(Code::kInvalidArgument,
              field + ": '" + base::Shown(text) + "' is not legal: report, pause or kill");
}

Result<NewSlice> ParseRequest(const RequestText& text, const std::vector<std::string>& command,
                              const model::Request* from) {
  NewSlice wanted;
  model::Request& request = wanted.request;
  if (from != nullptr) request = *from;
  if (text.memory.empty() && from == nullptr) {
    return Fail(Code::kInvalidArgument,
                "--mem: missing: whole MiB from 1, as 8000, 8000MiB or 8Gi");
  }
  if (!text.memory.empty()) {
    Result<std::uint64_t> memory = model::ParseMemory("--mem", text.memory);
    if (!memory) return Fail(memory.error());
    request.memory_bytes = *memory;
  }
  if (!text.cores.empty()) {
    Result<std::uint32_t> cores = model::ParseCores("--cores", text.cores);
    if (!cores) return Fail(cores.error());
    request.cores = *cores;
  }
  if (!text.card.empty()) {
    Result<std::vector<std::string>> cards = ParseCards("--card", text.card);
    if (!cards) return Fail(cards.error());
    request.only_cards = *cards;
    // Naming several cards asks for all of them unless --cards or the pod says how many.
    if (from == nullptr) request.card_count = static_cast<std::uint32_t>(request.only_cards.size());
  }
  if (!text.cards.empty()) {
    Result<std::uint32_t> count = model::ParseCardCount("--cards", text.cards);
    if (!count) return Fail(count.error());
    request.card_count = *count;
  }
  if (!text.name.empty()) {
    if (Status legal = model::CheckName("--name", text.name); !legal) return Fail(legal.error());
    request.name = text.name;
  }
  if (!text.priority.empty()) {
    Result<model::Priority> priority = model::ParsePriority("--priority", text.priority);
    if (!priority) return Fail(priority.error());
    request.priority = *priority;
  }
  if (!text.policy.empty()) {
    Result<model::Policy> policy = model::ParsePolicy("--policy", text.policy);
    if (!policy) return Fail(policy.error());
    request.policy = *policy;
  }
  if (!text.on_bypass.empty()) {
    Result<contract::BypassAction> bypass = ParseBypass("--on-bypass", text.on_bypass);
    if (!bypass) return Fail(bypass.error());
    wanted.bypass = *bypass;
  }
  if (command.empty() || command[0].empty()) {
    return Fail(
        Code::kInvalidArgument,
        "command: missing: give it after --, as in: tessera run --mem 8000 -- python serve.py");
  }
  wanted.command = Joined(command);
  wanted.program = command[0];
  return wanted;
}

Result<Change> ParseChange(const RequestText& text) {
  Change change;
  if (text.memory.empty() && text.cores.empty() && text.priority.empty()) {
    return Fail(Code::kInvalidArgument, "nothing to change: give --mem, --cores or --priority");
  }
  if (!text.memory.empty()) {
    Result<std::uint64_t> memory = model::ParseMemory("--mem", text.memory);
    if (!memory) return Fail(memory.error());
    change.memory_bytes = *memory;
  }
  if (!text.cores.empty()) {
    Result<std::uint32_t> cores = model::ParseCores("--cores", text.cores);
    if (!cores) return Fail(cores.error());
    change.cores = *cores;
  }
  if (!text.priority.empty()) {
    Result<model::Priority> priority = model::ParsePriority("--priority", text.priority);
    if (!priority) return Fail(priority.error());
    change.priority = *priority;
  }
  return change;
}

}  // namespace tessera::node
