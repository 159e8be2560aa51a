#include "model/uuid.h"

#include <cstddef>

namespace tessera::model {
namespace {

constexpr std::size_t kPrefix = 4;
constexpr std::size_t kText = 36;  // RFC 9562: 32 digits and 4 dashes

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool DashAt(std::size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

}  // namespace

std::optional<Uuid> ParseUuid(std::string_view text) {
  if (text.size() != kPrefix + kText) return std::nullopt;
  std::string_view prefix = text.substr(0, kPrefix);
  if (prefix != "GPU-" && prefix != "MIG-") return std::nullopt;
  Uuid uuid;
  uuid.is_mig = prefix == "MIG-";
  std::size_t digits = 0;
  for (std::size_t i = 0; i < kText; ++i) {
    char c = text[kPrefix + i];
    if (DashAt(i)) {
      if (c != '-') return std::nullopt;
      continue;
    }
    int value = HexDigit(c);
    if (value < 0) return std::nullopt;
    std::uint8_t& byte = uuid.bytes[digits / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | value);
    ++digits;
  }
  return uuid;
}

std::string ToString(const Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = uuid.is_mig ? "MIG-" : "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.bytes[i] >> 4];
    text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

}  // namespace tessera::model
