#include "kube/text/time.h"

#include <cstdio>
#include <optional>

namespace tessera::kube {
namespace {

constexpr std::int64_t kMicro = 1'000'000;

// Days since 1970 and back, after H. Hinnant, "chrono-compatible low-level date algorithms".
std::int64_t DaysOf(std::int64_t year, unsigned month, unsigned day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400;
  const auto of_era = static_cast<unsigned>(year - era * 400);
  const unsigned of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

std::string Format(std::int64_t seconds, std::optional<std::int64_t> micro) {
  const std::int64_t days = seconds / 86400, rest = seconds % 86400;
  const std::int64_t z = days + 719468, era = z / 146097;
  const auto doe = static_cast<unsigned>(z - era * 146097);
  const unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  const unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
  const unsigned day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
  const long long year = yoe + era * 400 + (month <= 2 ? 1 : 0);
  char text[64];
  int size = std::snprintf(text, sizeof text, "%04lld-%02u-%02uT%02d:%02d:%02d", year, month, day,
                           static_cast<int>(rest / 3600), static_cast<int>(rest / 60 % 60),
                           static_cast<int>(rest % 60));
  std::string out(text, static_cast<std::size_t>(size));
  if (micro) {
    size = std::snprintf(text, sizeof text, ".%06d", static_cast<int>(*micro));
    out.append(text, static_cast<std::size_t>(size));
  }
  return out + "Z";
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  // Exactly `digits` digits.
  std::optional<unsigned> Number(int digits) {
    unsigned value = 0;
    for (int i = 0; i < digits; ++i) {
      if (text_.empty() || text_[0] < '0' || text_[0] > '9') return std::nullopt;
      value = value * 10 + static_cast<unsigned>(text_[0] - '0');
      text_.remove_prefix(1);
    }
    return value;
  }
  bool Take(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool AtDigit() const { return !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; }
  bool Empty() const { return text_.empty(); }

 private:
  std::string_view text_;
};

std::optional<std::int64_t> Parse(std::string_view text) {
  Reader in(text);
  const auto year = in.Number(4);
  if (!year || !in.Take('-')) return std::nullopt;
  const auto month = in.Number(2);
  if (!month || !in.Take('-')) return std::nullopt;
  const auto day = in.Number(2);
  if (!day || !(in.Take('T') || in.Take('t'))) return std::nullopt;
  const auto hour = in.Number(2);
  if (!hour || !in.Take(':')) return std::nullopt;
  const auto minute = in.Number(2);
  if (!minute || !in.Take(':')) return std::nullopt;
  const auto second = in.Number(2);
  if (!second) return std::nullopt;
  if (*year < 1970 || *month < 1 || *month > 12 || *day < 1 || *day > 31 || *hour > 23 ||
      *minute > 59 || *second > 60) {
    return std::nullopt;
  }
  std::int64_t micro = 0;
  if (in.Take('.')) {
    if (!in.AtDigit()) return std::nullopt;
    for (std::int64_t unit = kMicro / 10; in.AtDigit(); unit /= 10) micro += *in.Number(1) * unit;
  }
  std::int64_t offset = 0;
  if (!in.Take('Z') && !in.Take('z')) {
    const int sign = in.Take('+') ? 1 : in.Take('-') ? -1 : 0;
    if (sign == 0) return std::nullopt;
    const auto hours = in.Number(2);
    if (!hours || !in.Take(':')) return std::nullopt;
    const auto minutes = in.Number(2);
    if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
    offset = sign * (*hours * 3600 + *minutes * 60);
  }
  if (!in.Empty()) return std::nullopt;
  const std::int64_t seconds =
      DaysOf(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60 + *second - offset;
  return seconds < 0 ? std::nullopt : std::optional(seconds * kMicro + micro);
}

}  // namespace

Result<std::int64_t> ParseTime(std::string_view text) {
  if (auto time = Parse(text)) return *time;
  return Fail(Code::kInvalidArgument, "not an RFC 3339 time");
}

std::string FormatTime(std::int64_t seconds) { return Format(seconds, std::nullopt); }

std::string FormatMicroTime(std::int64_t microseconds) {
  return Format(microseconds / kMicro, microseconds % kMicro);
}

}  // namespace tessera::kube
