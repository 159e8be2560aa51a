// Bounds-checked little-endian reads from device code images.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace tessera::sim {

template <typename T>
std::optional<T> ReadAt(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

inline std::span<const std::uint8_t> SliceOf(std::span<const std::uint8_t> bytes,
                                             std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

// The NUL-terminated text at `offset`; empty when it does not end inside.
inline std::string_view TextAt(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const char* start = reinterpret_cast<const char*>(bytes.data()) + offset;
  const void* end = std::memchr(start, 0, bytes.size() - offset);
  if (end == nullptr) return {};
  return {start, static_cast<std::size_t>(static_cast<const char*>(end) - start)};
}

}  // namespace tessera::sim
