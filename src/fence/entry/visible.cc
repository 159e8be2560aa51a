#include "entry/visible.h"

namespace tessera::fence {
namespace {

constexpr std::size_t kMostCards = 64;
constexpr int kNoCard = -1;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view Trim(const char* begin, const char* end) {
  while (begin != end && (*begin == ' ' || *begin == '\t')) ++begin;
  while (begin != end && (end[-1] == ' ' || end[-1] == '\t')) --end;
  return {begin, static_cast<std::size_t>(end - begin)};
}

bool IsPrefix(std::string_view prefix, std::span<const char, kUuidTextBytes> uuid) {
  if (prefix.size() > uuid.size()) return false;
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    if (Lower(prefix[i]) != Lower(uuid[i])) return false;
  }
  return true;
}

// An index within the slice or a prefix of exactly one UUID.
int CardOf(std::string_view entry, std::span<const VisibleCard> cards) {
  if (entry.empty()) return kNoCard;
  if (entry[0] >= '0' && entry[0] <= '9') {
    std::size_t index = 0;
    for (char c : entry) {
      if (c < '0' || c > '9') return kNoCard;
      index = index * 10 + static_cast<std::size_t>(c - '0');
      if (index >= cards.size()) return kNoCard;
    }
    return static_cast<int>(index);
  }
  if (entry.size() <= 4) return kNoCard;  // "GPU-" alone names nothing
  int found = kNoCard;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    char uuid[kUuidTextBytes];
    WriteUuid(cards[i], uuid);
    if (!IsPrefix(entry, uuid)) continue;
    if (found != kNoCard) return kNoCard;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

void WriteUuid(const VisibleCard& card, std::span<char, kUuidTextBytes> text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::size_t at = 0;
  for (char c : std::string_view(card.is_mig ? "MIG-" : "GPU-")) text[at++] = c;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    text[at++] = kHex[card.uuid[i] >> 4];
    text[at++] = kHex[card.uuid[i] & 15];
  }
}

std::string_view VisibleDevices(std::span<const VisibleCard> cards, const char* wanted,
                                std::span<char> text) {
  bool taken[kMostCards] = {};
  int order[kMostCards];
  std::size_t count = 0;
  if (wanted == nullptr) {
    for (; count < cards.size() && count < kMostCards; ++count)
      order[count] = static_cast<int>(count);
  } else {
    for (const char* at = wanted;;) {
      const char* end = at;
      while (*end != '\0' && *end != ',') ++end;
      const int card = CardOf(Trim(at, end), cards);
      if (card == kNoCard) break;
      if (taken[card]) {
        count = 0;
        break;
      }
      taken[card] = true;
      order[count++] = card;
      if (*end == '\0') break;
      at = end + 1;
    }
  }
  std::size_t used = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (used + 1 + kUuidTextBytes > text.size()) break;
    if (i > 0) text[used++] = ',';
    WriteUuid(cards[static_cast<std::size_t>(order[i])],
              std::span<char, kUuidTextBytes>(text.data() + used, kUuidTextBytes));
    used += kUuidTextBytes;
  }
  if (used == 0 && text.size() >= 2) {
    text[used++] = '-';
    text[used++] = '1';
  }
  return {text.data(), used};
}

}  // namespace tessera::fence
