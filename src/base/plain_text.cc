#include "base/plain_text.h"

namespace tessera::base {
namespace {

bool IsObeyed(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::size_t PrintableBytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return IsObeyed(byte(0)) ? 0 : 1;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc0 ? 2 : 0;
  if (length == 0 || length > text.size()) return 0;
  char32_t c = byte(0) & (0xff >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // less is an overlong form
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  return c < kLeast[length] || c > 0x10ffff || surrogate || IsObeyed(c) ? 0 : length;
}

std::string Printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = PrintableBytes(text);
    if (bytes > 0) {
      result += text.substr(0, bytes);
    } else {
      result += '?';
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return result;
}

bool IsPlainText(std::string_view text) {
  while (!text.empty()) {
    const bool space = text[0] == '\t' || text[0] == '\n' || text[0] == '\r';
    const std::size_t bytes = space ? 1 : PrintableBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string OneLine(std::string_view text, std::size_t most) {
  if (text.size() <= most) return Printable(text);
  std::size_t size = most - 3;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return Printable(text.substr(0, size)) + "...";
}

}  // namespace tessera::base
