// Text that comes from outside: what may be handed to a parser, and how it is shown to people.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tessera::base {

// Only printable characters, tabs and line ends, and no byte that UTF-8 never has: yaml-cpp takes
// the bytes 0x04 and 0xff for the end of its input and never comes back.
inline bool IsPlainText(std::string_view text) {
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 && c != '\t' && c != '\n' && c != '\r';
    if (control || byte == 0x7f || byte == 0xc0 || byte == 0xc1 || byte > 0xf4) return false;
  }
  return true;
}

// One line that no terminal obeys: each control character becomes "?"; cut at `most` bytes, between
// characters, with "..." for the rest.
inline std::string OneLine(std::string_view text, std::size_t most) {
  std::size_t size = text.size();
  if (size > most) {
    size = most - 3;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  }
  std::string line;
  for (char c : text.substr(0, size)) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return size < text.size() ? line + "..." : line;
}

inline constexpr std::size_t kShownBytes = 64;
inline constexpr std::size_t kMessageBytes = 600;

// A value as messages quote it.
inline std::string Shown(std::string_view value) { return OneLine(value, kShownBytes); }

// A whole message.
inline std::string Message(std::string_view text) { return OneLine(text, kMessageBytes); }

}  // namespace tessera::base
