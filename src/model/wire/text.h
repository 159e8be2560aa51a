// What the codecs of this folder share. Not for others.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::model::wire {

// The API server takes no more than this for all annotations of an object together.
inline constexpr std::size_t kMaxAnnotationBytes = std::size_t{256} << 10;

inline constexpr std::int64_t kMaxCount = 2'147'483'647;          // HAMi counts in int32
inline constexpr std::int64_t kMaxUnixSeconds = 253'402'300'799;  // the last second of 9999

// kInvalidArgument, "WHERE: 'VALUE' is not legal: LEGAL"; the value is cut and printable.
tl::unexpected<Error> NotLegal(std::string_view where, std::string_view value,
                               std::string_view legal);

// kInvalidArgument for a value that no API server would hold.
Status CheckBytes(std::string_view where, std::string_view value);

// A decimal number and nothing else; nothing when it is none or not from `least` to `most`.
std::optional<std::int64_t> WholeNumber(std::string_view text, std::int64_t least,
                                        std::int64_t most);

// Always one piece at least.
std::vector<std::string_view> Split(std::string_view text, char separator);

// 1 to `most` bytes, printable; a word has none of the separators , : ; in it.
bool IsText(std::string_view text, std::size_t most);
bool IsWord(std::string_view text, std::size_t most);

inline constexpr std::size_t kMaxIdBytes = 128;
inline constexpr std::size_t kMaxTextBytes = 256;
inline constexpr char kLegalId[] = "1 to 128 printable bytes without , : and ;";
inline constexpr char kLegalText[] = "1 to 256 printable bytes";
inline constexpr char kLegalWord[] = "1 to 256 printable bytes without , : and ;";
inline constexpr char kLegalCount[] = "a whole number, 0 to 2147483647";

}  // namespace tessera::model::wire
