// The values that people type: memory, percent, priority, policy, names. Strict: what is not legal
// is an error of one line with the field, the value and what is legal; nothing is rounded, clamped
// or guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::model {

inline constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

// The most that a slice may hold: 16 TiB, far above any card and far below the 48 bits of a charge
// word.
inline constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 44;

// As contract::Priority and HAMi's nvidia.com/priority: 0 runs before 1.
enum class Priority : std::uint32_t { kHigh = 0, kLow = 1 };

enum class Policy { kBinpack, kSpread };

// Bytes. A bare number, Mi and MiB count MiB (the unit of nvidia.com/gpumem); Gi and GiB count GiB.
// Whole numbers only, from 1 MiB to kMaxMemory. Decimal units (M, MB, G, GB) are refused: on cards
// they are taken for binary ones by half of their users. `field` is the option's name for the
// message.
Result<std::uint64_t> ParseMemory(std::string_view field, std::string_view text);

// 1..100 whole percent of one card.
Result<std::uint32_t> ParseCores(std::string_view field, std::string_view text);

Result<std::uint32_t> ParseCardCount(std::string_view field, std::string_view text);  // 1..16
Result<Priority> ParsePriority(std::string_view field, std::string_view text);        // low, high
Result<Policy> ParsePolicy(std::string_view field, std::string_view text);  // binpack, spread

// 1 to 63 of a-z A-Z 0-9 . _ - and starting with a letter or digit.
Status CheckName(std::string_view field, std::string_view text);

// A legal name made from a command: its last path component with illegal characters replaced.
std::string NameFromCommand(std::string_view command);

const char* ToString(Priority priority);
const char* ToString(Policy policy);
std::string MibText(std::uint64_t bytes);  // "23,028 MiB"; partial MiB are cut off

}  // namespace tessera::model
