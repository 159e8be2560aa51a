#include "model/wire/text.h"

#include <charconv>

#include "base/plain_text.h"

namespace tessera::model::wire {

tl::unexpected<Error> NotLegal(std::string_view where, std::string_view value,
                               std::string_view legal) {
  return Fail(Code::kInvalidArgument, base::OneLine(where, 2 * base::kShownBytes) + ": '" +
                                          base::Shown(value) +
                                          "' is not legal: " + std::string(legal));
}

Status CheckBytes(std::string_view where, std::string_view value) {
  if (value.size() <= kMaxAnnotationBytes) return {};
  return NotLegal(where, value,
                  "at most " + std::to_string(kMaxAnnotationBytes) + " bytes, and these are " +
                      std::to_string(value.size()));
}

std::optional<std::int64_t> WholeNumber(std::string_view text, std::int64_t least,
                                        std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size()) return {};
  if (value < least || value > most) return {};
  return value;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (std::size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  pieces.push_back(text);
  return pieces;
}

bool IsWord(std::string_view text, std::size_t most) {
  return text.find_first_of(",:;") == std::string_view::npos && IsText(text, most);
}

bool IsText(std::string_view text, std::size_t most) {
  if (text.empty() || text.size() > most) return false;
  while (!text.empty()) {
    const std::size_t bytes = base::PrintableBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace tessera::model::wire
