#include <elf.h>

#include <algorithm>
#include <string>

#include "sim/cuda/code_bytes.h"
#include "sim/cuda/code_image.h"

namespace tessera::sim {
namespace {

constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint8_t kOtherEntry = 0x10, kOtherManaged = 0x04;

// .nv.info records: u8 format, u8 attribute, then by format nothing, u8/u16 in place, or u16 length
// and bytes.
constexpr std::uint8_t kFormatNone = 1, kFormatByte = 2, kFormatHalf = 3, kFormatSized = 4;
constexpr std::uint8_t kAttrMaxThreads = 0x05, kAttrRequiredThreads = 0x10, kAttrFrameSize = 0x11,
                       kAttrMinStackSize = 0x12, kAttrKernelParam = 0x17, kAttrRegisters = 0x2F,
                       kAttrClusterDim = 0x3D;

struct Section {
  std::string_view name;
  std::uint32_t type = 0, info = 0;
  std::uint64_t size = 0;
  std::span<const std::uint8_t> bytes;  // empty for NOBITS
};

struct Symbol {
  std::string_view name;
  std::uint8_t type = 0, other = 0;
  std::uint16_t section = 0;
  std::uint64_t value = 0, size = 0;
};

template <typename Use>
void ForEachRecord(std::span<const std::uint8_t> info, Use use) {
  std::uint64_t at = 0;
  while (at + 4 <= info.size()) {
    const std::uint8_t format = info[at], attribute = info[at + 1];
    if (format == kFormatSized) {
      const auto length = *ReadAt<std::uint16_t>(info, at + 2);
      const auto body = SliceOf(info, at + 4, length);
      if (body.size() != length) return;
      use(attribute, body);
      at += 4 + length;
    } else if (format == kFormatNone || format == kFormatByte || format == kFormatHalf) {
      use(attribute, info.subspan(at + 2, 2));
      at += 4;
    } else {
      return;
    }
  }
}

std::vector<Section> Sections(std::span<const std::uint8_t> bytes) {
  std::vector<Section> sections;
  const auto header = ReadAt<Elf64_Ehdr>(bytes, 0);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return sections;
  std::vector<Elf64_Shdr> raw;
  for (std::uint32_t i = 0; i < header->e_shnum; ++i) {
    const auto section = ReadAt<Elf64_Shdr>(bytes, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return {};
    raw.push_back(*section);
  }
  if (header->e_shstrndx >= raw.size()) return sections;
  const auto names =
      SliceOf(bytes, raw[header->e_shstrndx].sh_offset, raw[header->e_shstrndx].sh_size);
  for (const Elf64_Shdr& section : raw) {
    Section out{
        TextAt(names, section.sh_name), section.sh_type, section.sh_info, section.sh_size, {}};
    if (section.sh_type != SHT_NOBITS) {
      out.bytes = SliceOf(bytes, section.sh_offset, section.sh_size);
      if (out.bytes.size() != section.sh_size) return {};
    }
    sections.push_back(out);
  }
  return sections;
}

std::vector<Symbol> Symbols(const std::vector<Section>& sections) {
  std::vector<Symbol> symbols;
  const Section *table = nullptr, *names = nullptr;
  for (const Section& section : sections) {
    if (section.type == SHT_SYMTAB) table = &section;
    if (section.name == ".strtab") names = &section;
  }
  if (table == nullptr || names == nullptr) return symbols;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->bytes.size();
       at += sizeof(Elf64_Sym)) {
    const auto raw = *ReadAt<Elf64_Sym>(table->bytes, at);
    symbols.push_back({TextAt(names->bytes, raw.st_name),
                       static_cast<std::uint8_t>(ELF64_ST_TYPE(raw.st_info)), raw.st_other,
                       raw.st_shndx, raw.st_value, raw.st_size});
  }
  return symbols;
}

void ReadKernelInfo(std::span<const std::uint8_t> info, KernelInfo& kernel) {
  ForEachRecord(info, [&](std::uint8_t attribute, std::span<const std::uint8_t> body) {
    if (attribute == kAttrKernelParam && body.size() >= 12) {
      const std::uint16_t ordinal = *ReadAt<std::uint16_t>(body, 4);
      if (ordinal >= 4096) return;
      if (kernel.params.size() <= ordinal) kernel.params.resize(ordinal + 1u);
      kernel.params[ordinal] = {*ReadAt<std::uint16_t>(body, 6),
                                *ReadAt<std::uint32_t>(body, 8) >> 18};
    } else if ((attribute == kAttrMaxThreads || attribute == kAttrRequiredThreads) &&
               body.size() >= 12) {
      const std::uint64_t threads = std::uint64_t{*ReadAt<std::uint32_t>(body, 0)} *
                                    *ReadAt<std::uint32_t>(body, 4) *
                                    *ReadAt<std::uint32_t>(body, 8);
      if (threads >= 1 && threads <= 1024) kernel.max_threads = static_cast<std::uint32_t>(threads);
    } else if (attribute == kAttrClusterDim && body.size() >= 12) {
      for (int i = 0; i < 3; ++i) kernel.cluster[i] = *ReadAt<std::uint32_t>(body, 4 * i);
    }
  });
}

}  // namespace

std::uint32_t CubinArch(std::span<const std::uint8_t> bytes) {
  const auto header = ReadAt<Elf64_Ehdr>(bytes, 0);
  if (!header || header->e_machine != kMachineCuda) return 0;
  return header->e_ident[EI_ABIVERSION] >= 8 ? (header->e_flags >> 8) & 0xFF
                                             : header->e_flags & 0xFF;
}

ImageResult ParseCubin(std::span<const std::uint8_t> bytes) {
  ImageResult result;
  if (!IsElf(bytes) || CubinArch(bytes) == 0) return result;
  CodeImage& image = result.image;
  image.kind = CodeKind::kCubin;
  image.arch = image.ptx_version = CubinArch(bytes);

  const std::vector<Section> sections = Sections(bytes);
  if (sections.empty()) return result;
  const std::vector<Symbol> symbols = Symbols(sections);
  std::uint32_t constants = 0;
  for (const Section& section : sections) {
    if (section.name.starts_with(".text.")) image.code_bytes += section.size;
    if (section.name == ".nv.constant3") constants = static_cast<std::uint32_t>(section.size);
  }

  for (const Symbol& symbol : symbols) {
    if (symbol.section >= sections.size() || symbol.name.empty()) continue;
    const Section& home = sections[symbol.section];
    if (symbol.type == STT_FUNC && (symbol.other & kOtherEntry)) {
      KernelInfo kernel;
      kernel.name = symbol.name;
      kernel.const_bytes = constants;
      image.kernels.emplace(kernel.name, std::move(kernel));
    } else if (symbol.type == STT_OBJECT &&
               (home.name.starts_with(".nv.global") || home.name.starts_with(".nv.constant"))) {
      VariableInfo variable;
      variable.name = symbol.name;
      variable.size = symbol.size;
      variable.constant = home.name.starts_with(".nv.constant");
      variable.managed = (symbol.other & kOtherManaged) != 0;
      const auto content = SliceOf(home.bytes, symbol.value, symbol.size);
      variable.content.assign(content.begin(), content.end());
      image.variables.emplace(variable.name, std::move(variable));
    }
  }

  for (const Section& section : sections) {
    if (section.name == ".nv.info") {
      ForEachRecord(section.bytes, [&](std::uint8_t attribute, std::span<const std::uint8_t> body) {
        if (body.size() < 8) return;
        const std::uint32_t index = *ReadAt<std::uint32_t>(body, 0),
                            value = *ReadAt<std::uint32_t>(body, 4);
        if (index >= symbols.size()) return;
        const auto found = image.kernels.find(symbols[index].name);
        if (found == image.kernels.end()) return;
        if (attribute == kAttrRegisters) found->second.registers = value;
        if (attribute == kAttrFrameSize || attribute == kAttrMinStackSize) {
          found->second.local_bytes = std::max(found->second.local_bytes, value);
        }
      });
    } else if (section.name.starts_with(".nv.info.")) {
      const auto found = image.kernels.find(section.name.substr(9));
      if (found != image.kernels.end()) ReadKernelInfo(section.bytes, found->second);
    } else if (section.name.starts_with(".nv.shared.")) {
      const auto found = image.kernels.find(section.name.substr(11));
      if (found != image.kernels.end())
        found->second.shared_bytes = static_cast<std::uint32_t>(section.size);
    }
  }
  result.ok = true;
  return result;
}

}  // namespace tessera::sim
