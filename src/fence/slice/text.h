// Text put together in a fixed buffer: no heap, no formatting library, cut at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::fence {

class Text {
 public:
  Text(char* buffer, std::size_t bytes) : buffer_(buffer), bytes_(bytes) { buffer_[0] = '\0'; }
  Text& operator<<(std::string_view text) {
    for (const char c : text) {
      if (used_ + 1 >= bytes_) break;
      buffer_[used_++] = c;
    }
    buffer_[used_] = '\0';
    return *this;
  }
  Text& operator<<(std::uint64_t value) {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    while (count > 0) *this << std::string_view(&digits[--count], 1);
    return *this;
  }
  // NAME='value' as a user wrote it, of whatever length: what is legal must still find room behind
  // it.
  struct Quoted {
    std::string_view name, value;
  };
  Text& operator<<(const Quoted& quoted) {
    constexpr std::size_t kMost = 80;
    *this << quoted.name << "='";
    if (quoted.value.size() <= kMost) return *this << quoted.value << "'";
    return *this << std::string_view(quoted.value.data(), kMost) << "...' ("
                 << std::uint64_t{quoted.value.size()} << " bytes)";
  }
  Text& Hex(std::uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) {
      *this << std::string_view(&"0123456789abcdef"[value >> shift & 15], 1);
    }
    return *this;
  }
  bool full() const { return used_ + 1 >= bytes_; }

 private:
  char* buffer_;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

}  // namespace tessera::fence
