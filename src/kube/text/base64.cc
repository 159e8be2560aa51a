#include "kube/text/base64.h"

#include <array>
#include <cstdint>

namespace tessera::kube {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> kValues = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}();

}  // namespace

Result<std::string> DecodeBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t quad = 0;
  int count = 0, padding = 0;
  for (char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const int value = c == '=' ? 0 : kValues[static_cast<unsigned char>(c)];
    if (c == '=') {
      ++padding;
    } else if (padding > 0 || value < 0) {
      return Fail(Code::kInvalidArgument, "not base64");
    }
    quad = quad << 6 | static_cast<std::uint32_t>(value);
    if (++count < 4) continue;
    if (padding > 2) return Fail(Code::kInvalidArgument, "not base64");
    for (int i = 0; i < 3 - padding; ++i) bytes += static_cast<char>(quad >> (16 - 8 * i) & 0xff);
    quad = 0;
    count = 0;
  }
  if (count != 0) return Fail(Code::kInvalidArgument, "base64 that ends too early");
  return bytes;
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t quad = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      quad = quad << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kAlphabet[quad >> (18 - 6 * k) & 0x3f];
    }
  }
  return text;
}

}  // namespace tessera::kube
