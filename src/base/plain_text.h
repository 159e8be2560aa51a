// What may be handed to a parser of text: yaml-cpp takes the bytes 0x04 and 0xff for the end of its
// input and never comes back.
#pragma once

#include <string_view>

namespace tessera::base {

// Only printable characters, tabs and line ends, and no byte that UTF-8 never has.
inline bool IsPlainText(std::string_view text) {
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 && c != '\t' && c != '\n' && c != '\r';
    if (control || byte == 0x7f || byte == 0xc0 || byte == 0xc1 || byte > 0xf4) return false;
  }
  return true;
}

}  // namespace tessera::base
