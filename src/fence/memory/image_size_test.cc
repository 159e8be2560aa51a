#include "memory/image_size.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tessera::fence {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::uint64_t Variables(std::string_view text) { return PtxNeed(text).variables; }

TEST(ImageSize, PtxVariablesOfDeviceMemory) {
  EXPECT_EQ(Variables(".visible .global .align 16 .b8 a[12582912];"), 12 * kMiB);
  EXPECT_EQ(Variables(".global .u32 one;\n.global .f64 two[3][4];"), 4u + 96u);
  EXPECT_EQ(Variables(".global .v4 .f32 v[2] = {1, 2};"), 32u);
  EXPECT_EQ(Variables(".global .attribute(.managed) .align 4 .b8 m[100];"), 100u);
  EXPECT_EQ(Variables(".extern .global .align 4 .b8 elsewhere[100];"), 0u);
  EXPECT_EQ(Variables("  ld.global.u32 %r1, [%rd1];\n  st.global.f32 [%rd2], %f1;"), 0u);
  EXPECT_EQ(Variables(".global .b8 large[3145728];"), 4 * kMiB) << "blocks of its own";
  EXPECT_EQ(Variables(".shared .b8 s[4096];"), 0u);
}

TEST(ImageSize, DamagedTextGivesSomeFigureOnly) {
  for (const char* text :
       {".global", ".global ", ".global .b8 x[", ".global .b8 x[99999999999999999999999];",
        ".global .attribute(", ".global .b8 x[4][", ".global .align"}) {
    const std::string padded = std::string("\n") + text;
    PtxNeed(padded);
    EXPECT_LE(ImageBytes(padded.data(), padded.size(), {8, 6}), std::uint64_t{1} << 44);
  }
}

TEST(ImageSize, TextWithoutLengthEndsAtItsNul) {
  EXPECT_EQ(ImageBytes(".version 7.0\n.global .b8 a[12582912];", Capability{8, 6}), 14 * kMiB);
  EXPECT_EQ(ImageBytes(nullptr, Capability{8, 6}), 0u);
}

std::string Cubin(std::uint64_t code, std::uint64_t zeroed, std::uint64_t filled) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  Elf64_Shdr sections[4]{};
  sections[1] = {0, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 0, code, 0, 0, 0, 0};
  sections[2] = {0, SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, 0, zeroed, 0, 0, 0, 0};
  sections[3] = {0, SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 0, filled, 0, 0, 0, 0};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(sections), sizeof sections);
  return bytes;
}

TEST(ImageSize, CubinByItsSections) {
  const std::string cubin = Cubin(3 * kMiB, 5 * kMiB, kMiB);
  EXPECT_EQ(ImageBytes(cubin.data(), Capability{8, 6}), 4 * kMiB + 6 * kMiB);
  const std::string cut = cubin.substr(0, cubin.size() - 1);
  EXPECT_EQ(ImageBytes(cut.data(), cut.size(), {8, 6}), 0u);
}

struct FatEntry {
  std::uint16_t kind;
  std::uint32_t arch;
  std::string content;
  std::uint64_t flags = 0, plain = 0;
};

std::string Fat(const std::vector<FatEntry>& entries) {
  std::string body;
  for (const FatEntry& entry : entries) {
    char header[64] = {};
    const std::uint32_t header_bytes = 64;
    const std::uint64_t size = entry.content.size();
    std::memcpy(header, &entry.kind, 2);
    std::memcpy(header + 4, &header_bytes, 4);
    std::memcpy(header + 8, &size, 8);
    std::memcpy(header + 28, &entry.arch, 4);
    std::memcpy(header + 40, &entry.flags, 8);
    std::memcpy(header + 56, &entry.plain, 8);
    body.append(header, sizeof header).append(entry.content);
  }
  char header[16] = {};
  const std::uint32_t magic = 0xBA55ED50;
  const std::uint16_t header_bytes = 16;
  const std::uint64_t size = body.size();
  std::memcpy(header, &magic, 4);
  std::memcpy(header + 6, &header_bytes, 2);
  std::memcpy(header + 8, &size, 8);
  return std::string(header, sizeof header) + body;
}

TEST(ImageSize, OfAFatBinaryTheImageForTheCardCounts) {
  const std::string fat = Fat({{2, 80, Cubin(kMiB, 0, 0)},
                               {2, 86, Cubin(9 * kMiB, 0, 0)},
                               {2, 90, Cubin(99 * kMiB, 0, 0)},
                               {1, 70, ".global .b8 a[4194304];"}});
  EXPECT_EQ(ImageBytes(fat.data(), Capability{8, 6}), 10 * kMiB);
  EXPECT_EQ(ImageBytes(fat.data(), Capability{8, 0}), 2 * kMiB);
  EXPECT_EQ(ImageBytes(fat.data(), Capability{7, 5}), 6 * kMiB) << "compiled from PTX";
  EXPECT_EQ(ImageBytes(fat.data(), Capability{6, 0}), 0u);
}

TEST(ImageSize, ACompressedEntryCountsByItsPlainSize) {
  const std::string fat = Fat({{2, 86, "xxxx", 0x8000, 7 * kMiB}});
  EXPECT_EQ(ImageBytes(fat.data(), Capability{8, 6}), 8 * kMiB);
}

TEST(ImageSize, EveryCutOfAFatBinaryIsRead) {
  const std::string fat = Fat({{2, 80, Cubin(kMiB, 0, 0)}, {1, 70, ".global .b8 a[4194304];"}});
  for (std::size_t size = 0; size < fat.size(); ++size) {
    const std::vector<char> cut(fat.begin(), fat.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_LE(ImageBytes(cut.data(), cut.size(), {8, 6}), 16 * kMiB);
  }
}

TEST(ImageSize, TheCompilersWrapperIsFollowed) {
  const std::string fat = Fat({{2, 80, Cubin(kMiB, 0, 0)}});
  struct {
    std::uint32_t magic = 0x466243B1, version = 1;
    const void* data;
    void* filename = nullptr;
  } wrapper;
  wrapper.data = fat.data();
  EXPECT_EQ(ImageBytes(&wrapper, Capability{8, 6}), 2 * kMiB);
}

}  // namespace
}  // namespace tessera::fence
