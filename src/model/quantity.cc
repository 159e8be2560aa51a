#include "model/quantity.h"

#include <charconv>

#include "base/plain_text.h"
#include "contract/slice_layout.h"

namespace tessera::model {
namespace {

constexpr char kMemoryLegal[] = "whole MiB from 1, as 8000, 8000MiB or 8Gi";

tl::unexpected<Error> Illegal(std::string_view field, std::string_view text,
                              std::string_view legal) {
  return Fail(Code::kInvalidArgument, std::string(field) + ": '" + base::Shown(text) +
                                          "' is not legal: " + std::string(legal));
}

// A whole unsigned number in all of `text`, no sign, no blank.
bool WholeNumber(std::string_view text, std::uint64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<std::uint32_t> InRange(std::string_view field, std::string_view text, std::uint32_t most,
                              const std::string& legal) {
  std::uint64_t value = 0;
  if (!WholeNumber(text, value) || value < 1 || value > most) return Illegal(field, text, legal);
  return static_cast<std::uint32_t>(value);
}

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool IsNameChar(char c) { return IsNameStart(c) || c == '.' || c == '_' || c == '-'; }

constexpr std::size_t kMaxName = contract::kNameBytes - 1;

}  // namespace

Result<std::uint64_t> ParseMemory(std::string_view field, std::string_view text) {
  std::size_t digits = text.find_first_not_of("0123456789");
  std::string_view number = text.substr(0, digits);
  std::string_view unit = digits == std::string_view::npos ? "" : text.substr(digits);
  std::uint64_t scale = 0;
  if (unit.empty() || unit == "Mi" || unit == "MiB") scale = kMib;
  if (unit == "Gi" || unit == "GiB") scale = kMib << 10;
  std::uint64_t value = 0;
  if (scale == 0 || !WholeNumber(number, value) || value == 0)
    return Illegal(field, text, kMemoryLegal);
  if (value > kMaxMemory / scale) {
    return Illegal(field, text, std::string(kMemoryLegal) + ", at most " + MibText(kMaxMemory));
  }
  return value * scale;
}

Result<std::uint32_t> ParseCores(std::string_view field, std::string_view text) {
  return InRange(field, text, 100, "whole percent of one card from 1 to 100");
}

Result<std::uint32_t> ParseCardCount(std::string_view field, std::string_view text) {
  return InRange(field, text, contract::kMaxCards,
                 "a whole number of cards from 1 to " + std::to_string(contract::kMaxCards));
}

Result<Priority> ParsePriority(std::string_view field, std::string_view text) {
  if (text == "high") return Priority::kHigh;
  if (text == "low") return Priority::kLow;
  return Illegal(field, text, "low or high");
}

Result<Policy> ParsePolicy(std::string_view field, std::string_view text) {
  if (text == "binpack") return Policy::kBinpack;
  if (text == "spread") return Policy::kSpread;
  return Illegal(field, text, "binpack or spread");
}

Status CheckName(std::string_view field, std::string_view text) {
  bool legal = !text.empty() && text.size() <= kMaxName && IsNameStart(text[0]);
  for (char c : text) legal = legal && IsNameChar(c);
  if (legal) return {};
  return Illegal(field, text,
                 "1 to " + std::to_string(kMaxName) +
                     " of a-z A-Z 0-9 . _ - beginning with a letter or digit");
}

std::string NameFromCommand(std::string_view command) {
  constexpr std::size_t kMaxFromCommand = 40;  // leaves room for "-2" and the like
  std::size_t slash = command.rfind('/');
  if (slash != std::string_view::npos) command = command.substr(slash + 1);
  std::string name(command.substr(0, kMaxFromCommand));
  for (char& c : name) {
    if (!IsNameChar(c)) c = '-';
  }
  if (!name.empty() && IsNameStart(name[0])) return name;
  std::string prefixed = "run";
  prefixed += name;
  return prefixed;
}

const char* ToString(Priority priority) { return priority == Priority::kHigh ? "high" : "low"; }
const char* ToString(Policy policy) { return policy == Policy::kBinpack ? "binpack" : "spread"; }

std::string MibText(std::uint64_t bytes) {
  std::string text = std::to_string(bytes / kMib);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text + " MiB";
}

}  // namespace tessera::model
