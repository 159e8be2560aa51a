#include "entry/elf_object.h"

#include <cstring>

namespace tessera::fence {
namespace {

constexpr std::uint16_t kHiddenVersion = 0x8000;

std::uint32_t GnuHash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

std::uint32_t SysvHash(const char* name) {
  std::uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const std::uint32_t high = hash & 0xf0000000;
    hash ^= high >> 24;
    hash &= ~high;
  }
  return hash;
}

struct Visit {
  bool (*function)(const LoadedObject&, void*);
  void* context;
};

int VisitHeader(dl_phdr_info* info, std::size_t, void* argument) {
  const auto& visit = *static_cast<Visit*>(argument);
  LoadedObject object{
      info->dlpi_name != nullptr ? info->dlpi_name : "", info->dlpi_addr, UINTPTR_MAX, 0, {}};
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      if (begin < object.begin) object.begin = begin;
      if (begin + header.p_memsz > object.end) object.end = begin + header.p_memsz;
    }
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  if (dynamic == nullptr) return 0;
  object.elf = ElfObject(info->dlpi_addr, dynamic);
  return visit.function(object, visit.context) ? 1 : 0;
}

}  // namespace

// glibc relocates the addresses of a dynamic section in place, other linkers and the vdso do not.
const char* ElfObject::At(std::uint64_t value) const {
  return reinterpret_cast<const char*>(value < base_ ? base_ + value : value);
}

ElfObject::ElfObject(std::uintptr_t base, const ElfW(Dyn) * dynamic) : base_(base) {
  if (dynamic == nullptr) return;
  std::uint64_t soname = UINT64_MAX;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const std::uint64_t value = dynamic->d_un.d_val;
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(At(value));
        break;
      case DT_STRTAB:
        strings_ = At(value);
        break;
      case DT_SONAME:
        soname = value;
        break;
      case DT_GNU_HASH:
        gnu_hash_ = reinterpret_cast<const std::uint32_t*>(At(value));
        break;
      case DT_HASH:
        sysv_hash_ = reinterpret_cast<const std::uint32_t*>(At(value));
        break;
      case DT_VERSYM:
        versions_ = reinterpret_cast<const std::uint16_t*>(At(value));
        break;
      default:
        break;
    }
  }
  if (strings_ == nullptr) symbols_ = nullptr;
  if (strings_ != nullptr && soname != UINT64_MAX) soname_ = strings_ + soname;
}

void* ElfObject::Match(std::uint32_t index, const char* name, bool* is_default) const {
  const ElfW(Sym)& symbol = symbols_[index];
  const unsigned type = symbol.st_info & 0xf;
  const unsigned binding = symbol.st_info >> 4;
  if (symbol.st_shndx == SHN_UNDEF ||
      (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE))
    return nullptr;
  if (binding != STB_GLOBAL && binding != STB_WEAK) return nullptr;
  if (std::strcmp(strings_ + symbol.st_name, name) != 0) return nullptr;
  *is_default = versions_ == nullptr || (versions_[index] & kHiddenVersion) == 0;
  return reinterpret_cast<void*>(base_ + symbol.st_value);
}

void* ElfObject::Find(const char* name) const {
  if (symbols_ == nullptr) return nullptr;
  void* hidden = nullptr;
  bool is_default = false;
  if (gnu_hash_ != nullptr) {
    const std::uint32_t buckets = gnu_hash_[0];
    const std::uint32_t first = gnu_hash_[1];
    const std::uint32_t words = gnu_hash_[2];
    if (buckets == 0 || words == 0) return nullptr;
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash_ + 4);
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(bloom + words);
    const std::uint32_t* chain = bucket + buckets;
    const std::uint32_t hash = GnuHash(name);
    constexpr std::uint32_t kBits = sizeof(ElfW(Addr)) * 8;
    const ElfW(Addr) word = bloom[(hash / kBits) % words];
    if (((word >> (hash % kBits)) & (word >> ((hash >> gnu_hash_[3]) % kBits)) & 1) == 0)
      return nullptr;
    std::uint32_t index = bucket[hash % buckets];
    if (index < first) return nullptr;
    for (;; ++index) {
      const std::uint32_t entry = chain[index - first];
      if ((entry | 1) == (hash | 1)) {
        void* address = Match(index, name, &is_default);
        if (address != nullptr && is_default) return address;
        if (address != nullptr) hidden = address;
      }
      if ((entry & 1) != 0) return hidden;
    }
  }
  if (sysv_hash_ == nullptr || sysv_hash_[0] == 0) return nullptr;
  const std::uint32_t buckets = sysv_hash_[0];
  const std::uint32_t* chain = sysv_hash_ + 2 + buckets;
  for (std::uint32_t index = sysv_hash_[2 + SysvHash(name) % buckets]; index != 0;
       index = chain[index]) {
    void* address = Match(index, name, &is_default);
    if (address != nullptr && is_default) return address;
    if (address != nullptr) hidden = address;
  }
  return hidden;
}

bool ForEachObject(bool (*visit)(const LoadedObject& object, void* context), void* context) {
  Visit argument{visit, context};
  return dl_iterate_phdr(VisitHeader, &argument) != 0;
}

}  // namespace tessera::fence
