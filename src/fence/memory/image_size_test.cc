#include "memory/image_size.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

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

// A copy that ends where memory ends.
class AtTheEnd {
 public:
  explicit AtTheEnd(const std::string& bytes) {
    map_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map_ + kBytes - 4096, 4096, PROT_NONE);
    data_ = map_ + kBytes - 4096 - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~AtTheEnd() { munmap(map_, kBytes); }
  char* data() { return data_; }

 private:
  static constexpr std::size_t kBytes = 2 << 20;
  char* map_;
  char* data_;
};

TEST(ImageSize, HeadersThatLeadNowhereCostNoProcess) {
  const Capability card{8, 6};
  const std::uint64_t offsets[] = {std::uint64_t{1} << 32,
                                   std::uint64_t{1} << 47,
                                   std::uint64_t{1} << 63,
                                   ~std::uint64_t{0} - 63,
                                   4096,
                                   8};
  for (const std::uint64_t offset : offsets) {
    std::string cubin = Cubin(kMiB, kMiB, kMiB);
    std::memcpy(cubin.data() + offsetof(Elf64_Ehdr, e_shoff), &offset, sizeof offset);
    AtTheEnd image(cubin);
    EXPECT_LE(ImageBytes(image.data(), card), std::uint64_t{1} << 44) << offset;
  }
  std::string wrapper(24, '\0');
  const std::uint32_t magic = 0x466243B1;
  std::memcpy(wrapper.data(), &magic, sizeof magic);
  for (const std::uint64_t inner :
       {std::uint64_t{0xdead0000}, ~std::uint64_t{0}, std::uint64_t{1}}) {
    std::memcpy(wrapper.data() + 8, &inner, sizeof inner);
    AtTheEnd image(wrapper);
    EXPECT_EQ(ImageBytes(image.data(), card), 0u);
  }
  AtTheEnd short_wrapper(wrapper.substr(0, 8));
  EXPECT_EQ(ImageBytes(short_wrapper.data(), card), 0u);
  AtTheEnd text(".version 7.0\n.global .b8 a[12582912];");
  EXPECT_EQ(ImageBytes(text.data(), card), 14 * kMiB) << "without a NUL";
  EXPECT_EQ(ImageBytes(reinterpret_cast<const void*>(8), card), 0u);
  std::string large(300 * 4096, ' ');
  large += ".global .b8 a[12582912];";
  AtTheEnd pages(large);
  EXPECT_EQ(ImageBytes(pages.data(), card), 14 * kMiB);
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
