#include "memory/image_size.h"

#include <elf.h>

#include <cstring>

#include "memory/alloc_table.h"
#include "os/os.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;  // fatbinary_section.h
constexpr std::uint32_t kFatMagic = 0xBA55ED50;
constexpr std::uint16_t kPtxKind = 1, kElfKind = 2;
constexpr std::uint64_t kCompressed = 0x2000 | 0x8000;  // LZ4, zstd
constexpr std::size_t kMostText = std::size_t{256} << 20;
constexpr std::size_t kUnbounded = std::size_t{1} << 47;

// Memory of the program, as far as it is there: what its headers say may lead anywhere.
class Probe {
 public:
  bool Reaches(const char* data, std::size_t bytes) {
    const auto from = reinterpret_cast<std::uint64_t>(data);
    if (from < from_ || from > to_) {
      from_ = to_ = from;
      step_ = kPage;
    }
    while (to_ - from < bytes) {
      const std::size_t more = os::ReadableBytes(reinterpret_cast<const void*>(to_), step_);
      to_ += more;
      if (more < step_) return to_ - from >= bytes;
      if (step_ < 128 * kPage) step_ *= 2;
    }
    return true;
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::uint64_t from_ = 0, to_ = 0;  // can be read
  std::size_t step_ = kPage;
};

struct Bytes {
  const char* data;
  std::size_t size;
  Probe* probe = nullptr;  // null: all of it is there

  template <typename T>
  bool Read(std::uint64_t at, T* value) const {
    if (at > size || size - at < sizeof(T)) return false;
    if (probe != nullptr && !probe->Reaches(data + at, sizeof(T))) return false;
    std::memcpy(value, data + at, sizeof(T));
    return true;
  }
  Bytes Part(std::uint64_t at, std::uint64_t bytes) const {
    return {data + at, static_cast<std::size_t>(bytes), probe};
  }
  // Up to its NUL, or to where it cannot be read.
  std::string_view Text() const {
    std::size_t length = 0, good = probe == nullptr ? size : 0;
    for (;; ++length) {
      if (length == size || length == kMostText) break;
      if (length == good) {
        if (!probe->Reaches(data + length, 1)) break;
        good = length + 1;
      }
      if (data[length] == '\0') break;
    }
    return {data, length};
  }
};

// The library is linked without the C++ library, whose views throw.
std::string_view Part(std::string_view text, std::size_t from, std::size_t bytes) {
  if (from > text.size()) return {};
  return {text.data() + from, bytes < text.size() - from ? bytes : text.size() - from};
}

bool Stands(std::string_view text, std::size_t at, std::string_view word) {
  return at <= text.size() && text.size() - at >= word.size() &&
         std::memcmp(text.data() + at, word.data(), word.size()) == 0;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Skips white space and comments.
std::size_t Skip(std::string_view text, std::size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  return at;
}

std::string_view Word(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && !IsSpace(text[end]) && text[end] != '[' && text[end] != ';' &&
         text[end] != '=' && text[end] != '(' && text[end] != ')' && text[end] != '{')
    ++end;
  return Part(text, at, end - at);
}

// Bytes of one element of a type such as .b8, .u32, .f64; 0 for anything else.
std::uint64_t TypeBytes(std::string_view word) {
  if (word.size() < 3 || word[0] != '.') return 0;
  if (word[1] != 'b' && word[1] != 'u' && word[1] != 's' && word[1] != 'f') return 0;
  std::uint64_t bits = 0;
  for (const char c : Part(word, 2, word.size())) {
    if (c < '0' || c > '9' || bits > 1024) return 0;
    bits = bits * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return bits / 8;
}

// The declaration that starts at `at`, behind ".global": its bytes.
std::uint64_t Declared(std::string_view text, std::size_t at) {
  std::uint64_t element = 0, lanes = 1, count = 1;
  for (;;) {
    at = Skip(text, at);
    const std::string_view word = Word(text, at);
    if (word.empty()) break;
    if (word == ".v2") lanes = 2;
    if (word == ".v4") lanes = 4;
    if (const std::uint64_t bytes = TypeBytes(word); bytes != 0) element = bytes;
    at += word.size();
    if (word[0] != '.') {
      // ".align 16", ".attribute(.managed)" have been passed by; this is an alignment or the name.
      if (word[0] >= '0' && word[0] <= '9') continue;
      break;
    }
    at = Skip(text, at);
    if (at < text.size() && text[at] == '(') {
      while (at < text.size() && text[at] != ')' && text[at] != ';') ++at;
      if (at < text.size()) ++at;
    }
  }
  for (at = Skip(text, at); at < text.size() && text[at] == '['; at = Skip(text, at)) {
    std::uint64_t dimension = 0;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (dimension < kMaxAllocation)
        dimension = dimension * 10 + static_cast<std::uint64_t>(text[at] - '0');
    }
    while (at < text.size() && text[at] != ']' && text[at] != ';') ++at;
    if (at < text.size()) ++at;
    if (__builtin_mul_overflow(count, dimension, &count) || count > kMaxAllocation)
      return kMaxAllocation;
  }
  std::uint64_t all = 0;
  if (__builtin_mul_overflow(count, element * lanes, &all) || all > kMaxAllocation)
    return kMaxAllocation;
  return all;
}

// ".global" as a word of its own; "ld.global" is an instruction, ".extern .global" declares
// nothing.
bool IsDirective(std::string_view text, std::size_t at) {
  if (at != 0 && !IsSpace(text[at - 1])) return false;
  std::size_t end = at;
  while (end > 0 && IsSpace(text[end - 1])) --end;
  constexpr std::string_view kExtern = ".extern";
  return end < kExtern.size() || !Stands(text, end - kExtern.size(), kExtern);
}

std::uint64_t InBlocks(const ImageNeed& need) {
  if (need.code == 0 && need.variables == 0) return 0;
  std::uint64_t sum = RoundToBlocks(need.code);
  if (need.variables != 0) sum += RoundToBlocks(need.variables);
  return sum < kMaxAllocation ? sum : kMaxAllocation;
}

bool ElfNeed(Bytes elf, ImageNeed* need) {
  Elf64_Ehdr header;
  if (!elf.Read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!elf.Read(header.e_shoff + std::uint64_t{i} * sizeof section, &section)) return false;
    if ((section.sh_flags & SHF_ALLOC) == 0 || section.sh_size > kMaxAllocation) continue;
    if ((section.sh_flags & SHF_EXECINSTR) != 0) {
      need->code += section.sh_size;
    } else if (section.sh_type == SHT_NOBITS || (section.sh_flags & SHF_WRITE) != 0) {
      // Shared memory of kernels (.nv.shared.*) is no card memory; it is small and counted all the
      // same.
      need->variables += section.sh_size;
    }
    if (need->code > kMaxAllocation || need->variables > kMaxAllocation) return false;
  }
  return true;
}

// An entry of a fat binary, by how well it suits the card; 0 = not at all.
std::uint64_t Suits(std::uint16_t kind, std::uint32_t arch, Capability card) {
  const std::uint32_t wanted = card.major * 10 + card.minor;
  if (wanted == 0) return kind == kElfKind ? 1000 + arch : 1 + arch;
  if (kind == kElfKind) return arch / 10 == card.major && arch <= wanted ? 1000 + arch : 0;
  return kind == kPtxKind && arch <= wanted ? 1 + arch : 0;
}

bool FatNeed(Bytes fat, Capability card, ImageNeed* need) {
  std::uint16_t header_bytes = 0;
  std::uint64_t all = 0;
  if (!fat.Read(6, &header_bytes) || !fat.Read(8, &all)) return false;
  if (header_bytes < 16 || all > kMaxAllocation || fat.size < header_bytes) return false;
  if (fat.size - header_bytes < all) all = fat.size - header_bytes;
  const Bytes entries = fat.Part(header_bytes, all);
  std::uint64_t best = 0;
  for (std::uint64_t at = 0; at < entries.size;) {
    std::uint16_t kind = 0;
    std::uint32_t entry_header = 0, arch = 0;
    std::uint64_t payload = 0, flags = 0, plain = 0;
    if (!entries.Read(at, &kind) || !entries.Read(at + 4, &entry_header) ||
        !entries.Read(at + 8, &payload) || !entries.Read(at + 28, &arch))
      break;
    if (entry_header < 32 || payload > entries.size || entry_header > entries.size - at) break;
    if (payload > entries.size - at - entry_header) break;
    if (entry_header >= 64) {
      entries.Read(at + 40, &flags);
      entries.Read(at + 56, &plain);
    }
    if (const std::uint64_t suits = Suits(kind, arch, card); suits > best) {
      best = suits;
      *need = {};
      const Bytes content = entries.Part(at + entry_header, payload);
      if ((flags & kCompressed) != 0) {
        need->code = plain != 0 && plain <= kMaxAllocation ? plain : payload;
      } else if (kind == kPtxKind) {
        *need = PtxNeed(content.Text());
      } else if (!ElfNeed(content, need)) {
        *need = {payload, 0};
      }
    }
    at += entry_header + payload;
  }
  return best != 0;
}

}  // namespace

ImageNeed PtxNeed(std::string_view text) {
  constexpr std::string_view kGlobal = ".global";
  ImageNeed need{text.size(), 0};
  for (std::size_t at = 0; at + kGlobal.size() < text.size(); ++at) {
    if (text[at] != '.' || !Stands(text, at, kGlobal)) continue;
    const std::size_t behind = at + kGlobal.size();
    if (!IsDirective(text, at) || behind >= text.size() || !IsSpace(text[behind])) continue;
    // Large variables take blocks of their own.
    const std::uint64_t bytes = Declared(text, behind);
    need.variables += bytes > kShareLimit ? RoundToBlocks(bytes) : bytes;
    if (need.variables > kMaxAllocation) need.variables = kMaxAllocation;
  }
  return need;
}

namespace {

std::uint64_t NeedOf(const Bytes& all, Capability card) {
  std::uint32_t magic = 0;
  ImageNeed need;
  if (!all.Read(0, &magic)) return 0;
  if (magic == kFatMagic) return FatNeed(all, card, &need) ? InBlocks(need) : 0;
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return ElfNeed(all, &need) ? InBlocks(need) : 0;
  return InBlocks(PtxNeed(all.Text()));
}

}  // namespace

std::uint64_t ImageBytes(const void* image, std::size_t bytes, Capability card) {
  return NeedOf({static_cast<const char*>(image), bytes}, card);
}

std::uint64_t ImageBytes(const void* image, Capability card) {
  if (image == nullptr) return 0;
  Probe probe;
  Bytes all{static_cast<const char*>(image), kUnbounded, &probe};
  std::uint32_t magic = 0;
  if (!all.Read(0, &magic)) return 0;
  if (magic == kWrapperMagic) {
    const char* inner = nullptr;
    if (!all.Read(8, &inner) || inner == nullptr) return 0;
    all.data = inner;
  }
  return NeedOf(all, card);
}

}  // namespace tessera::fence
