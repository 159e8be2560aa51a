#include "model/wire/handshake.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

constexpr char kLegal[] =
    "Requesting_, Reported or Deleted_ with a time of 1970 to 9999 as YYYY-MM-DD HH:MM:SS";
constexpr std::size_t kMaxBytes = 256;

const char* ToString(Handshake::State state) {
  switch (state) {
    case Handshake::State::kRequesting:
      return "Requesting";
    case Handshake::State::kReported:
      return "Reported";
    case Handshake::State::kDeleted:
      return "Deleted";
  }
  return "Deleted";
}

// Takes a text apart from its beginning; each Take says whether it was there.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool Take(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<int> Digits(std::size_t count) {
    if (text_.size() < count) return {};
    for (std::size_t i = 0; i < count; ++i) {
      if (text_[i] < '0' || text_[i] > '9') return {};
    }
    const auto value = WholeNumber(text_.substr(0, count), 0, 9999);
    text_.remove_prefix(count);
    return static_cast<int>(*value);
  }
  // One or more of `characters`.
  bool Some(std::string_view characters) {
    const std::size_t end = std::min(text_.find_first_not_of(characters), text_.size());
    text_.remove_prefix(end);
    return end > 0;
  }
  bool Empty() const { return text_.empty(); }

 private:
  std::string_view text_;
};

constexpr char kDigits[] = "0123456789";

std::optional<std::int64_t> ReadFace(Reader& in) {
  const auto year = in.Digits(4);
  const std::string_view separator = in.Take("-") ? "-" : ".";
  if (!year || (separator == "." && !in.Take("."))) return {};
  const auto month = in.Digits(2);
  if (!month || !in.Take(separator)) return {};
  const auto day = in.Digits(2);
  if (!day || !in.Take(" ")) return {};
  const auto hour = in.Digits(2);
  if (!hour || !in.Take(":")) return {};
  const auto minute = in.Digits(2);
  if (!minute || !in.Take(":")) return {};
  const auto second = in.Digits(2);
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!second || *year < 1970 || !date.ok() || *hour > 23 || *minute > 59 || *second > 59)
    return {};
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + *hour) * 60 + *minute) * 60 + *second;
}

// What Go puts behind the seconds: a fraction, the zone as number and name, the monotonic clock.
bool ReadTail(Reader& in, Handshake& handshake) {
  if (in.Take(".") && !in.Some(kDigits)) return false;
  const bool east = in.Take(" +");
  if (east || in.Take(" -")) {
    const auto hours = in.Digits(2);
    const auto minutes = in.Digits(2);
    if (!hours || !minutes || *hours > 23 || *minutes > 59) return false;
    const std::int32_t offset = (*hours * 60 + *minutes) * 60;
    handshake.utc_offset_seconds = east ? offset : -offset;
    if (!in.Take(" ") || !in.Some("ABCDEFGHIJKLMNOPQRSTUVWXYZ+-0123456789")) return in.Empty();
  }
  if (in.Take(" m=")) {
    if (!in.Take("+") && !in.Take("-")) return false;
    if (!in.Some(kDigits) || (in.Take(".") && !in.Some(kDigits))) return false;
  }
  return in.Empty();
}

std::optional<Handshake> Read(std::string_view value) {
  Reader in(value);
  Handshake handshake;
  if (in.Take("Requesting")) {
    handshake.state = Handshake::State::kRequesting;
  } else if (in.Take("Reported")) {
    handshake.state = Handshake::State::kReported;
  } else if (in.Take("Deleted")) {
    handshake.state = Handshake::State::kDeleted;
  } else {
    return {};
  }
  if (in.Empty()) return handshake;
  if (!in.Take("_") && !in.Take(" ")) return {};
  if (in.Empty()) return handshake;
  handshake.face_seconds = ReadFace(in);
  if (!handshake.face_seconds || !ReadTail(in, handshake)) return {};
  return handshake;
}

}  // namespace

Result<Handshake> ReadHandshake(std::string_view annotation, std::string_view value) {
  const std::optional<Handshake> handshake =
      value.size() <= kMaxBytes ? Read(value) : std::optional<Handshake>();
  if (!handshake) return NotLegal(annotation, value, kLegal);
  return *handshake;
}

Result<std::string> WriteHandshake(std::string_view annotation, const Handshake& handshake) {
  if (!handshake.face_seconds) return NotLegal(annotation, ToString(handshake.state), kLegal);
  const std::int64_t seconds = *handshake.face_seconds;
  if (seconds < 0 || seconds > kMaxUnixSeconds) {
    return NotLegal(annotation, std::to_string(seconds), "seconds since 1970, 0 to 253402300799");
  }
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(seconds / 86400))};
  const int rest = static_cast<int>(seconds % 86400);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u %02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), rest / 3600,
                rest / 60 % 60, rest % 60);
  const bool reported = handshake.state == Handshake::State::kReported;
  return std::string(ToString(handshake.state)) + (reported ? " " : "_") + text;
}

}  // namespace tessera::model::wire
