#include "cli/text.h"

#include <algorithm>

#include "base/plain_text.h"

namespace tessera::cli {
namespace {

struct Character {
  std::size_t bytes = 1;
  std::size_t columns = 1;
};

// Ranges that terminals draw two columns wide (Unicode East Asian Width W and F) and that take none
// (combining marks), as far as names and commands use them.
bool IsWide(char32_t c) {
  return (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
         (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
         (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) ||
         (c >= 0x20000 && c <= 0x3fffd);
}

bool IsCombining(char32_t c) {
  return (c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0xfe00 && c <= 0xfe0f) || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

Character First(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  bytes = std::min(bytes, text.size());
  if (bytes == 1) return {1, 1};
  char32_t c = lead & (0xff >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i)
    c = (c << 6) | (static_cast<unsigned char>(text[i]) & 0x3f);
  return {bytes, IsCombining(c) ? 0u : IsWide(c) ? 2u : 1u};
}

}  // namespace

std::size_t Columns(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character first = First(text);
    columns += first.columns;
    text.remove_prefix(first.bytes);
  }
  return columns;
}

std::string Cut(std::string_view unchecked, std::size_t width) {
  std::string whole = base::Printable(unchecked);
  std::string_view text = whole;
  if (Columns(text) <= width) return whole;
  std::string result;
  std::size_t columns = 0;
  while (!text.empty() && width > 0) {
    const Character first = First(text);
    if (columns + first.columns > width - 1) break;
    result += text.substr(0, first.bytes);
    columns += first.columns;
    text.remove_prefix(first.bytes);
  }
  return width > 0 ? result + "~" : result;
}

std::string Left(std::string_view text, std::size_t width) {
  std::string result = Cut(text, width);
  return result + std::string(width - Columns(result), ' ');
}

std::string Right(std::string_view text, std::size_t width) {
  const std::string result = Cut(text, width);
  return std::string(width - Columns(result), ' ') + result;
}

std::string CommandLine(std::string_view line, std::size_t width) {
  if (Columns(line) <= width) return Left(line, width);
  std::string text;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    std::string_view word = line.substr(0, end);
    const std::size_t slash = word.rfind('/');
    if (slash != std::string_view::npos && slash + 1 < word.size()) word.remove_prefix(slash + 1);
    text += word;
    if (end < line.size()) text += ' ';
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return Left(text, width);
}

std::string Wrapped(std::string_view unchecked, std::size_t width, std::string_view indent) {
  const std::string whole = base::Printable(unchecked);
  std::string_view text = whole;
  std::string result;
  std::string line(text.substr(0, std::min(text.find_first_not_of(' '), text.size())));
  text.remove_prefix(line.size());
  bool empty = true;  // no word on this line yet
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view blanks = text.substr(0, begin);
    const std::string_view word = text.substr(begin, end - begin);
    text.remove_prefix(end);
    if (word.empty()) break;
    if (!empty && Columns(line) + blanks.size() + Columns(word) > width) {
      result += line + "\n";
      line = indent;
    } else {
      line += blanks;
    }
    line += word;
    empty = false;
  }
  return result + line + "\n";
}

std::string Thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string Mib(std::uint64_t bytes) {
  if (bytes > 0 && bytes < (std::uint64_t{1} << 20)) return "<1";
  return Thousands(bytes >> 20);
}

std::string Age(std::int64_t seconds) {
  seconds = std::max<std::int64_t>(seconds, 0);
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m";
  if (seconds < 86400) return std::to_string(seconds / 3600) + "h";
  return std::to_string(seconds / 86400) + "d";
}

std::string Percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return std::to_string(part >= (std::uint64_t{1} << 56) ? 100 : part * 100 / whole) + " %";
}

}  // namespace tessera::cli
