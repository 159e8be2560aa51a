#include "entry/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "contract/names.h"
#include "entry/elf_object.h"
#include "real.h"

namespace tessera::fence {
namespace {

// Marks in function_of: not looked up yet is nullptr.
char absent_mark;
void* const kAbsent = &absent_mark;

struct Adopted {
  std::uint32_t state;  // atomic; 0 none, 1 being adopted, 2 adopted
  ElfObject object;
};
constinit Adopted adopted[2] = {};
constinit void* function_of[kMostEntries] = {};  // atomic

const char* SonameOf(Library library) {
  return library == Library::kCuda ? contract::kCudaLibrary : contract::kNvmlLibrary;
}

// Never unmapped from here on: real::NAME keeps its addresses.
void Pin(const char* path, const void* link_map) {
  if (path == nullptr || *path == '\0') return;
  constexpr int kFlags = RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE;
  Lmid_t name_space = LM_ID_BASE;
  using Dlinfo = int (*)(void*, int, void*);
  using Dlmopen = void* (*)(Lmid_t, const char*, int);
  using Dlopen = void* (*)(const char*, int);
  if (link_map != nullptr) {
    const auto dlinfo = reinterpret_cast<Dlinfo>(LibcFunction("dlinfo"));
    if (dlinfo == nullptr || dlinfo(const_cast<void*>(link_map), RTLD_DI_LMID, &name_space) != 0)
      return;
  }
  if (name_space != LM_ID_BASE) {
    const auto dlmopen = reinterpret_cast<Dlmopen>(LibcFunction("dlmopen"));
    if (dlmopen != nullptr) dlmopen(name_space, path, kFlags);
    return;
  }
  const auto dlopen = reinterpret_cast<Dlopen>(LibcFunction("dlopen"));
  if (dlopen != nullptr) dlopen(path, kFlags);
}

bool IsAdopted(Library library) {
  return std::atomic_ref(adopted[static_cast<int>(library)].state)
             .load(std::memory_order_acquire) == 2;
}

bool Adopt(Library library, const ElfObject& object, const char* path, const void* link_map) {
  Adopted& place = adopted[static_cast<int>(library)];
  std::uint32_t expected = 0;
  std::atomic_ref state(place.state);
  if (!state.compare_exchange_strong(expected, 1, std::memory_order_acquire)) {
    // Another thread is copying 64 bytes: it is done before this one gets far.
    while (state.load(std::memory_order_acquire) != 2) {
    }
    return true;
  }
  place.object = object;
  state.store(2, std::memory_order_release);
  Pin(path, link_map);
  return true;
}

struct Search {
  Library library;
  ElfObject object;
  char path[1024];
};

bool IsDriver(const LoadedObject& object, void* context) {
  auto& search = *static_cast<Search*>(context);
  if (std::strcmp(object.elf.soname(), SonameOf(search.library)) != 0) return false;
  search.object = object.elf;
  std::size_t length = std::strlen(object.path);
  if (length >= sizeof search.path) length = 0;
  std::memcpy(search.path, object.path, length);
  search.path[length] = '\0';
  return true;
}

bool FindDriver(Library library) {
  if (IsAdopted(library)) return true;
  Search search;
  search.library = library;
  if (!ForEachObject(IsDriver, &search)) return false;
  return Adopt(library, search.object, search.path, nullptr);
}

// The object that `address` lies in, in whichever namespace: it may be the driver that nobody has
// met yet.
void AdoptByAddress(Library library, void* address) {
  using Dladdr1 = int (*)(const void*, Dl_info*, void**, int);
  constexpr int kLinkMap = 2;  // RTLD_DL_LINKMAP
  const auto dladdr1 = reinterpret_cast<Dladdr1>(LibcFunction("dladdr1"));
  if (dladdr1 == nullptr) return;
  Dl_info info;
  void* found = nullptr;
  if (dladdr1(address, &info, &found, kLinkMap) == 0 || found == nullptr) return;
  const auto* map = static_cast<const link_map*>(found);
  const ElfObject object(map->l_addr, map->l_ld);
  if (object && std::strcmp(object.soname(), SonameOf(library)) == 0)
    Adopt(library, object, map->l_name, map);
}

struct LibcSearch {
  const char* name;
  void* found;
};

bool IsLibc(const LoadedObject& object, void* context) {
  auto& search = *static_cast<LibcSearch*>(context);
  const char* soname = object.elf.soname();
  if (std::strcmp(soname, "libc.so.6") != 0 && std::strcmp(soname, "libdl.so.2") != 0) return false;
  search.found = object.elf.Find(search.name);
  return search.found != nullptr;
}

CUresult NoDriver() { return CUDA_ERROR_STUB_LIBRARY; }
CUresult NoDriverFunction() { return CUDA_ERROR_NOT_SUPPORTED; }
nvmlReturn_t NoNvml() { return NVML_ERROR_LIBRARY_NOT_FOUND; }
nvmlReturn_t NoNvmlFunction() { return NVML_ERROR_FUNCTION_NOT_FOUND; }
const char* NoNvmlText(nvmlReturn_t) { return "the NVIDIA management library is not loaded"; }

}  // namespace

void* LibcFunction(const char* name) {
  LibcSearch search{name, nullptr};
  ForEachObject(IsLibc, &search);
  return search.found;
}

bool LoadNvml() {
  if (FindDriver(Library::kNvml)) return true;
  if (!FindDriver(Library::kCuda)) return false;
  using Dlopen = void* (*)(const char*, int);
  const auto dlopen = reinterpret_cast<Dlopen>(LibcFunction("dlopen"));
  if (dlopen == nullptr) return false;
  dlopen(SonameOf(Library::kNvml), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  return FindDriver(Library::kNvml);
}

void AdoptFunction(EntryIndex entry, void* function) {
  std::atomic_ref(function_of[entry]).store(function, std::memory_order_release);
}

void* DriverFunction(EntryIndex entry) {
  std::atomic_ref known(function_of[entry]);
  void* function = known.load(std::memory_order_acquire);
  if (function != nullptr) return function == kAbsent ? nullptr : function;
  const Library library = EntryLibrary(entry);
  if (!FindDriver(library)) return nullptr;
  function = adopted[static_cast<int>(library)].object.Find(EntryName(entry));
  if (function != nullptr) {
    AdoptFunction(entry, function);
  } else {
    known.store(kAbsent, std::memory_order_release);
  }
  return function;
}

void* Substitute(EntryIndex entry, void* found) {
  if (found == nullptr) return nullptr;
  if (!IsAdopted(EntryLibrary(entry))) AdoptByAddress(EntryLibrary(entry), found);
  return found == DriverFunction(entry) ? WrapperOf(entry) : found;
}

// Called by the code that a fresh real::NAME points to: where to go on. `pointer` is real::NAME
// itself.
extern "C" [[gnu::visibility("hidden")]] void* tessera_resolve(std::uint32_t index,
                                                               void** pointer) {
  const auto entry = static_cast<EntryIndex>(index);
  void* function = DriverFunction(entry);
  if (function != nullptr) {
    std::atomic_ref(*pointer).store(function, std::memory_order_relaxed);
    return function;
  }
  const Library library = EntryLibrary(entry);
  if (library == Library::kCuda) {
    return reinterpret_cast<void*>(IsAdopted(library) ? NoDriverFunction : NoDriver);
  }
  if (std::strcmp(EntryName(entry), "nvmlErrorString") == 0)
    return reinterpret_cast<void*>(NoNvmlText);
  return reinterpret_cast<void*>(IsAdopted(library) ? NoNvmlFunction : NoNvml);
}

}  // namespace tessera::fence
