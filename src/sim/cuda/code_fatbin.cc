#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "sim/cuda/code_bytes.h"
#include "sim/cuda/code_image.h"

namespace tessera::sim {
namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::uint32_t kElfMagic = 0x464C457F;
constexpr std::uint16_t kEntryPtx = 1, kEntryCubin = 2;
constexpr std::uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr std::uint64_t kFlagCompressed = kFlagLz4 | kFlagZstd | 0x1000;
constexpr std::size_t kLargestImage = std::size_t{1} << 31;

struct Entry {
  std::uint16_t kind = 0;
  std::uint32_t arch = 0;
  std::uint64_t flags = 0;
  std::uint64_t plain_size = 0;  // when compressed
  std::span<const std::uint8_t> payload;
};

// Entries up to the first damaged one.
std::vector<Entry> Entries(std::span<const std::uint8_t> bytes) {
  std::vector<Entry> entries;
  const auto header_size = ReadAt<std::uint16_t>(bytes, 6);
  const auto body_size = ReadAt<std::uint64_t>(bytes, 8);
  if (!header_size || !body_size || *header_size < 16) return entries;
  std::uint64_t at = *header_size;
  std::uint64_t end = bytes.size();
  if (*body_size <= bytes.size() - std::min<std::uint64_t>(at, bytes.size())) end = at + *body_size;
  while (at < end && end - at >= 64) {
    const auto kind = ReadAt<std::uint16_t>(bytes, at);
    const auto header = ReadAt<std::uint32_t>(bytes, at + 4);
    const auto size = ReadAt<std::uint64_t>(bytes, at + 8);
    const auto packed = ReadAt<std::uint32_t>(bytes, at + 16);
    const auto arch = ReadAt<std::uint32_t>(bytes, at + 28);
    const auto flags = ReadAt<std::uint64_t>(bytes, at + 40);
    const auto plain = ReadAt<std::uint64_t>(bytes, at + 56);
    if (!kind || !header || !size || !packed || !arch || !flags || !plain) break;
    if (*header < 64 || *header > end - at || *size > end - at - *header) break;
    Entry entry{*kind, *arch, *flags, *plain, SliceOf(bytes, at + *header, *size)};
    if ((*flags & kFlagCompressed) && *packed != 0 && *packed <= *size) {
      entry.payload = entry.payload.first(*packed);
    }
    entries.push_back(entry);
    at += *header + *size;
  }
  return entries;
}

ImageResult ParseEntry(const Entry& entry) {
  std::vector<std::uint8_t> plain;
  std::span<const std::uint8_t> body = entry.payload;
  if (entry.flags & kFlagCompressed) {
    if (entry.plain_size > kLargestImage) return {};
    if (entry.flags & kFlagLz4) plain = DecompressLz4(body, entry.plain_size);
    if (entry.flags & kFlagZstd) plain = DecompressZstd(body, entry.plain_size);
    if (plain.empty()) {
      ImageResult result;
      if (entry.flags & (kFlagLz4 | kFlagZstd)) return result;
      result.ok = true;
      result.image.kind = entry.kind == kEntryPtx ? CodeKind::kPtx : CodeKind::kCubin;
      result.image.arch = result.image.ptx_version = entry.arch;
      result.image.code_bytes = entry.plain_size;
      result.image.opaque = true;
      return result;
    }
    body = plain;
  }
  if (entry.kind == kEntryCubin) return ParseCubin(body);
  std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
  return ParsePtx(text.substr(0, text.find('\0')));
}

}  // namespace

bool IsFatbin(std::span<const std::uint8_t> bytes) {
  return ReadAt<std::uint32_t>(bytes, 0) == kFatbinMagic;
}

bool IsElf(std::span<const std::uint8_t> bytes) {
  return ReadAt<std::uint32_t>(bytes, 0) == kElfMagic;
}

std::size_t ImageSize(const void** data) {
  const auto* at = static_cast<const std::uint8_t*>(*data);
  if (at == nullptr) return 0;
  std::uint32_t magic;
  std::memcpy(&magic, at, sizeof(magic));
  if (magic == kWrapperMagic) {
    const void* inner;
    std::memcpy(&inner, at + 8, sizeof(inner));
    if (inner == nullptr) return 0;
    *data = inner;
    at = static_cast<const std::uint8_t*>(inner);
    std::memcpy(&magic, at, sizeof(magic));
  }
  if (magic == kFatbinMagic) {
    std::uint16_t header;
    std::uint64_t body;
    std::memcpy(&header, at + 6, sizeof(header));
    std::memcpy(&body, at + 8, sizeof(body));
    return body > kLargestImage ? 0 : header + static_cast<std::size_t>(body);
  }
  if (magic == kElfMagic) {
    std::uint64_t sections, segments;
    std::uint16_t section_size, section_count, segment_size, segment_count;
    std::memcpy(&segments, at + 0x20, sizeof(segments));
    std::memcpy(&sections, at + 0x28, sizeof(sections));
    std::memcpy(&segment_size, at + 0x36, sizeof(segment_size));
    std::memcpy(&segment_count, at + 0x38, sizeof(segment_count));
    std::memcpy(&section_size, at + 0x3A, sizeof(section_size));
    std::memcpy(&section_count, at + 0x3C, sizeof(section_count));
    if (sections > kLargestImage || segments > kLargestImage) return 0;
    return std::max<std::size_t>({sections + std::size_t{section_size} * section_count,
                                  segments + std::size_t{segment_size} * segment_count, 64});
  }
  const bool text = (magic & 0x80808080) == 0 && (magic & 0xFF) != 0;
  return text ? std::strlen(reinterpret_cast<const char*>(at)) : 0;
}

ImageResult ChooseImage(std::span<const std::uint8_t> bytes, ComputeCapability card,
                        bool ptx_only) {
  const std::uint32_t arch = card.major * 10 + card.minor;
  const auto cubin_fits = [&](std::uint32_t a) { return a / 10 == card.major && a <= arch; };
  const auto refused = [](ImageError error) {
    ImageResult result;
    result.error = error;
    return result;
  };
  if (IsElf(bytes)) {
    ImageResult result = ParseCubin(bytes);
    if (result.ok && !cubin_fits(result.image.arch)) return refused(ImageError::kNoBinaryForGpu);
    return result;
  }
  if (!IsFatbin(bytes)) {
    if (bytes.empty() || bytes[0] >= 0x80) return refused(ImageError::kInvalidImage);
    ImageResult result = ParsePtx({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (result.ok && result.image.arch > arch) return refused(ImageError::kNoBinaryForGpu);
    return result;
  }
  const std::vector<Entry> entries = Entries(bytes);
  if (entries.empty()) {
    // A fat binary without entries is legal (a file without kernels); one that has a body which
    // cannot be read is not.
    const auto body = ReadAt<std::uint64_t>(bytes, 8);
    return refused(body && *body == 0 ? ImageError::kNoBinaryForGpu : ImageError::kInvalidImage);
  }
  const Entry* best = nullptr;
  if (!ptx_only) {
    for (const Entry& entry : entries) {
      if (entry.kind != kEntryCubin || !cubin_fits(entry.arch)) continue;
      if (best == nullptr || entry.arch > best->arch) best = &entry;
    }
  }
  std::uint32_t ptx_arch = 0;
  const Entry* ptx = nullptr;
  for (const Entry& entry : entries) {
    if (entry.kind != kEntryPtx || entry.arch > arch || entry.arch < ptx_arch) continue;
    ptx = &entry;
    ptx_arch = entry.arch;
  }
  if (best == nullptr) best = ptx;
  if (best == nullptr) return refused(ImageError::kNoBinaryForGpu);
  return ParseEntry(*best);
}

std::vector<std::uint8_t> DecompressZstd(std::span<const std::uint8_t> bytes, std::size_t size) {
  std::vector<std::uint8_t> plain;
  // The frame header's own size must agree before memory is taken for it.
  const unsigned long long stated = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (stated != size || size == 0) return plain;
  plain.resize(size);
  const std::size_t got = ZSTD_decompress(plain.data(), size, bytes.data(), bytes.size());
  if (ZSTD_isError(got) || got != size) plain.clear();
  return plain;
}

std::vector<std::uint8_t> DecompressLz4(std::span<const std::uint8_t> bytes, std::size_t size) {
  std::vector<std::uint8_t> plain;
  if (size == 0 || size / 255 > bytes.size()) return plain;  // LZ4 gains 255 : 1 at most
  plain.reserve(size);
  std::size_t at = 0;
  const auto extended = [&](std::size_t length) -> std::optional<std::size_t> {
    if (length != 15) return length;
    while (at < bytes.size()) {
      const std::uint8_t more = bytes[at++];
      length += more;
      if (more != 255) return length;
    }
    return std::nullopt;
  };
  while (at < bytes.size()) {
    const std::uint8_t token = bytes[at++];
    const auto literals = extended(token >> 4);
    if (!literals || *literals > bytes.size() - at || *literals > size - plain.size()) return {};
    plain.insert(plain.end(), bytes.begin() + at, bytes.begin() + at + *literals);
    at += *literals;
    if (at == bytes.size()) break;
    const auto distance = ReadAt<std::uint16_t>(bytes, at);
    if (!distance || *distance == 0 || *distance > plain.size()) return {};
    at += 2;
    const auto match = extended(token & 15);
    if (!match || *match + 4 > size - plain.size()) return {};
    for (std::size_t i = 0; i < *match + 4; ++i) plain.push_back(plain[plain.size() - *distance]);
  }
  if (plain.size() != size) plain.clear();
  return plain;
}

}  // namespace tessera::sim
