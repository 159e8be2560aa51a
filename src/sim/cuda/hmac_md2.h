// HMAC (RFC 2104) over MD2 (RFC 1319).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::sim {

inline constexpr std::size_t kMd2Bytes = 16;

void Md2(const std::uint8_t* data, std::size_t size, std::uint8_t (&digest)[kMd2Bytes]);
void HmacMd2(const std::uint8_t (&key)[kMd2Bytes], const std::uint8_t* data, std::size_t size,
             std::uint8_t (&digest)[kMd2Bytes]);

}  // namespace tessera::sim
