// Symbol look-up in an object that the dynamic linker has mapped, without its help.
//
// Needed where asking dlsym is not possible (to find dlsym itself) or would find the fence (the
// driver's own functions). Thread safety: reads immutable data of mapped objects; the caller sees
// to it that an object stays mapped.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace tessera::fence {

class ElfObject {
 public:
  constexpr ElfObject() = default;
  // `base` is the load bias (dlpi_addr, l_addr), `dynamic` the object's dynamic section in memory.
  ElfObject(std::uintptr_t base, const ElfW(Dyn) * dynamic);

  explicit operator bool() const { return symbols_ != nullptr; }
  std::uintptr_t base() const { return base_; }
  const char* soname() const { return soname_; }  // "" if it has none
  // Address of a defined function or object, nullptr if there is none. Of several versions the
  // default one.
  void* Find(const char* name) const;

 private:
  const char* At(std::uint64_t value) const;
  void* Match(std::uint32_t index, const char* name, bool* is_default) const;

  std::uintptr_t base_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const char* soname_ = "";
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* sysv_hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
};

// One object of the process, in load order.
struct LoadedObject {
  const char* path;  // "" for the program itself
  std::uintptr_t base;
  std::uintptr_t begin;  // of its mapped segments
  std::uintptr_t end;
  ElfObject elf;
  bool Contains(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at < end;
  }
};

// Calls visit(object, context) for each object of the main namespace until it returns true; that
// answer is returned.
bool ForEachObject(bool (*visit)(const LoadedObject& object, void* context), void* context);

}  // namespace tessera::fence
