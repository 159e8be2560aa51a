// Values of HAMi's variables, read strictly: what is not exactly legal is an error, never "no
// limit".
//
//   MemoryLimit m = ParseMemoryLimit("8000m");   // m.error == nullptr, m.bytes == 8000 MiB
//
// HAMi's own parser turns `2GB` into 2 bytes, `1.5g` into 1 GiB, `010g` into 8 GiB and `-1g`, `0`
// or garbage into no limit at all.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::contract {

inline constexpr char kLegalMemoryLimit[] =
    "<integer>[k|m|g], decimal and above 0, up to 256 TiB (k, m, g: x 1024, 1024^2, 1024^3; none: "
    "bytes)";
inline constexpr char kLegalCoreLimit[] = "<integer> percent, 0 to 100 (0 or 100: no limit)";

struct LimitValue {
  std::uint64_t value = 0;      // bytes, or percent
  const char* error = nullptr;  // what is wrong; nullptr = legal
};

namespace detail {

// Digits only, no sign, no blanks, no leading 0 (which other parsers read as octal).
constexpr const char* ParseDecimal(std::string_view text, std::uint64_t* value) {
  if (text.empty()) return "no number";
  if (text.size() > 1 && text[0] == '0') return "leading zero";
  std::uint64_t sum = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return "not a decimal integer";
    if (sum > (UINT64_MAX - 9) / 10) return "too large";
    sum = sum * 10 + static_cast<std::uint64_t>(c - '0');
  }
  *value = sum;
  return nullptr;
}

}  // namespace detail

constexpr LimitValue ParseMemoryLimit(std::string_view text) {
  unsigned shift = 0;
  if (text.empty()) return {0, "empty"};
  switch (text.back()) {
    case 'k':
    case 'K':
      shift = 10;
      break;
    case 'm':
    case 'M':
      shift = 20;
      break;
    case 'g':
    case 'G':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift != 0) text.remove_suffix(1);
  LimitValue limit;
  limit.error = detail::ParseDecimal(text, &limit.value);
  if (limit.error != nullptr) return {0, limit.error};
  if (limit.value == 0) return {0, "zero"};
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 48) - 1;
  if (limit.value > kMost >> shift) return {0, "too large"};
  limit.value <<= shift;
  return limit;
}

constexpr LimitValue ParseCoreLimit(std::string_view text) {
  LimitValue limit;
  if (text.empty()) return {0, "empty"};
  limit.error = detail::ParseDecimal(text, &limit.value);
  if (limit.error != nullptr) return {0, limit.error};
  if (limit.value > 100) return {0, "above 100"};
  if (limit.value == 0) limit.value = 100;
  return limit;
}

}  // namespace tessera::contract
