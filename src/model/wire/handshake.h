// hami.io/node-handshake and its siblings of other vendors: the scheduler asks ("Requesting_TIME"),
// the node's plugin answers ("Reported TIME"), the scheduler gives it up ("Deleted_TIME").
//
// Written: YYYY-MM-DD HH:MM:SS. Read is also what older versions wrote: YYYY.MM.DD, '_' and space
// in each other's place, Go's long form ("2024-01-23 04:30:04.434037031 +0000 UTC m=+11.7"), and a
// word without a time. The short form is local time of whoever wrote it and says not which: its age
// is a guess, and no decision may hang on it alone.
//
// Errors: kInvalidArgument, naming annotation, value and what is legal. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::model::wire {

struct Handshake {
  enum class State { kRequesting, kReported, kDeleted };
  State state = State::kRequesting;
  // The clock's face as seconds since 1970 had it been UTC. Subtract the offset where there is one.
  std::optional<std::int64_t> face_seconds;
  std::optional<std::int32_t> utc_offset_seconds;  // east is positive
  friend bool operator==(const Handshake&, const Handshake&) = default;
};

Result<Handshake> ReadHandshake(std::string_view annotation, std::string_view value);

// `face_seconds` is needed and has to lie in 1970 to 9999; the form has no place for the offset.
Result<std::string> WriteHandshake(std::string_view annotation, const Handshake& handshake);

}  // namespace tessera::model::wire
