// Text that comes from outside: what may be handed to a parser, and how it is shown to people.
//
// A character counts as printable when it is UTF-8 and no terminal obeys it: no control character
// (C0, C1, DEL), no line or paragraph separator, nothing that turns the direction of what follows.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::base {

// Bytes of the printable character that `text` begins with; 0 when it begins with none.
std::size_t PrintableBytes(std::string_view text);

// `text` with every byte that belongs to no printable character replaced by '?'.
std::string Printable(std::string_view text);

// Only printable characters, tabs and line ends: yaml-cpp takes the bytes 0x04 and 0xff for the end
// of its input and never comes back.
bool IsPlainText(std::string_view text);

// Printable, and cut at `most` bytes, between characters, with "..." for the rest.
std::string OneLine(std::string_view text, std::size_t most);

inline constexpr std::size_t kShownBytes = 64;
inline constexpr std::size_t kMessageBytes = 600;

// A value as messages quote it.
inline std::string Shown(std::string_view value) { return OneLine(value, kShownBytes); }

// A whole message.
inline std::string Message(std::string_view text) { return OneLine(text, kMessageBytes); }

}  // namespace tessera::base
