// What dlsym and dlvsym answer for the names that the fence stands before. All other names never
// come here: the thunk jumps to the next dlsym with the caller's own stack.
//
// Rule: the program gets a wrapper exactly where it would have got the driver's function without
// the fence.
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "entry/driver.h"
#include "entry/elf_object.h"
#include "entry/table.h"

extern "C" {
[[gnu::visibility("hidden")]] extern void* tessera_next_dlsym;
[[gnu::visibility("hidden")]] extern void* tessera_next_dlvsym;
[[gnu::visibility("hidden")]] void* tessera_find_next_dlsym();
[[gnu::visibility("hidden")]] void* tessera_find_next_dlvsym();
}

namespace tessera::fence {
namespace {

using Dlsym = void* (*)(void*, const char*);
using Dlvsym = void* (*)(void*, const char*, const char*);

// A look-up of one name, with or without a version, by the next dlsym (which may be another
// interposer's) or by libc.
struct Query {
  EntryIndex entry;
  const char* name;
  const char* version;  // nullptr for dlsym

  void* AskNext(void* handle) const {
    if (version != nullptr)
      return reinterpret_cast<Dlvsym>(tessera_find_next_dlvsym())(handle, name, version);
    return reinterpret_cast<Dlsym>(tessera_find_next_dlsym())(handle, name);
  }
  // libc takes the caller's position from the return address, which is the fence's here.
  [[gnu::noinline]] void* AskLibc(void* handle) const {
    void* found = nullptr;
    if (version != nullptr) {
      const auto libc = reinterpret_cast<Dlvsym>(LibcFunction("dlvsym"));
      if (libc != nullptr) found = libc(handle, name, version);
    } else {
      const auto libc = reinterpret_cast<Dlsym>(LibcFunction("dlsym"));
      if (libc != nullptr) found = libc(handle, name);
    }
    asm volatile("" ::: "memory");  // no tail call
    return found;
  }
};

struct CallerSearch {
  const void* caller;
  const char* name;
  const void* self;
  bool caller_seen = false;
  bool self_seen = false;
  bool caller_is_first = false;
  void* between = nullptr;  // first definition after the caller and before the fence, or after a
                            // caller behind it
};

bool WalkFromCaller(const LoadedObject& object, void* context) {
  auto& search = *static_cast<CallerSearch*>(context);
  const bool is_self = object.Contains(search.self);
  if (search.caller_seen && !is_self && search.between == nullptr) {
    search.between = object.elf.Find(search.name);
    if (search.between != nullptr) return true;
  }
  if (is_self) {
    search.self_seen = true;
    if (search.caller_seen) return true;
  }
  if (object.Contains(search.caller)) {
    search.caller_seen = true;
    search.caller_is_first = !search.self_seen;
  }
  return false;
}

// A search from the object that holds the caller through what it depends on, which is where
// RTLD_DEFAULT looks after the global scope. The object's own record is no handle before somebody
// has opened it.
void* AskCallersScope(const Query& query, const void* caller) {
  using Dladdr = int (*)(const void*, Dl_info*);
  using Dlopen = void* (*)(const char*, int);
  using Dlclose = int (*)(void*);
  const auto dladdr = reinterpret_cast<Dladdr>(LibcFunction("dladdr"));
  const auto dlopen = reinterpret_cast<Dlopen>(LibcFunction("dlopen"));
  const auto dlclose = reinterpret_cast<Dlclose>(LibcFunction("dlclose"));
  if (dladdr == nullptr || dlopen == nullptr || dlclose == nullptr) return nullptr;
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  void* handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;  // the program itself: its scope is the global one
  void* found = query.AskLibc(handle);
  dlclose(handle);
  return found;
}

// The search found the fence's own symbol: what stands behind it? Without a driver in that scope,
// nothing does.
void* BehindFence(const Query& query, const void* caller) {
  if (void* next = query.AskLibc(RTLD_NEXT)) return Substitute(query.entry, next);
  if (DriverFunction(query.entry) == nullptr) return nullptr;
  void* local = AskCallersScope(query, caller);
  if (local == nullptr || local == WrapperOf(query.entry)) return nullptr;
  return Substitute(query.entry, local);
}

struct Answer {
  void* value;
  std::uintptr_t done;  // 0: jump to the next dlsym
};

Answer Next(const Query& query, const void* caller) {
  CallerSearch search{caller, query.name, reinterpret_cast<const void*>(&WalkFromCaller)};
  ForEachObject(WalkFromCaller, &search);
  if (!search.caller_seen) return {nullptr, 0};  // another namespace
  if (search.between != nullptr) {
    void* answer = Substitute(query.entry, search.between);
    // Another library's function: let libc find it in the caller's true scope.
    if (answer == search.between && !search.caller_is_first) return {nullptr, 0};
    return {answer, 1};
  }
  if (!search.caller_is_first) return {nullptr, 0};
  return {BehindFence(query, caller), 1};
}

Answer LookUp(void* handle, const Query& query, const void* caller) {
  if (handle == RTLD_NEXT) return Next(query, caller);
  void* found = handle == RTLD_DEFAULT ? query.AskLibc(handle) : query.AskNext(handle);
  if (found == WrapperOf(query.entry)) return {BehindFence(query, caller), 1};
  if (found == nullptr && handle == RTLD_DEFAULT) return {nullptr, 0};
  return {Substitute(query.entry, found), 1};
}

// The first definition after the fence in load order, so that the interposers of others keep their
// turn.
struct NextSearch {
  const char* name;
  const void* self;
  bool behind = false;
  void* found = nullptr;
};

bool IsBehind(const LoadedObject& object, void* context) {
  auto& search = *static_cast<NextSearch*>(context);
  if (object.Contains(search.self)) {
    search.behind = true;
    return false;
  }
  if (search.behind) search.found = object.elf.Find(search.name);
  return search.found != nullptr;
}

void* FindNext(void** place, const char* name, void* first) {
  void* known = std::atomic_ref(*place).load(std::memory_order_acquire);
  if (known != first) return known;
  NextSearch search{name, reinterpret_cast<const void*>(&IsBehind)};
  ForEachObject(IsBehind, &search);
  void* found = search.found != nullptr ? search.found : LibcFunction(name);
  if (found != nullptr) std::atomic_ref(*place).store(found, std::memory_order_release);
  return found;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden")]] extern char tessera_next_dlsym_first[];
[[gnu::visibility("hidden")]] extern char tessera_next_dlvsym_first[];

void* tessera_find_next_dlsym() {
  return FindNext(&tessera_next_dlsym, "dlsym", tessera_next_dlsym_first);
}
void* tessera_find_next_dlvsym() {
  return FindNext(&tessera_next_dlvsym, "dlvsym", tessera_next_dlvsym_first);
}

[[gnu::visibility("hidden")]] Answer tessera_dlsym_hook(void* handle, const char* name,
                                                        const void* caller) {
  const EntryIndex entry = FindEntry(name);
  if (entry == kNoEntry || !IsHooked(entry)) return {nullptr, 0};
  return LookUp(handle, {entry, name, nullptr}, caller);
}

[[gnu::visibility("hidden")]] Answer tessera_dlvsym_hook(void* handle, const char* name,
                                                         const char* version, const void* caller) {
  const EntryIndex entry = FindEntry(name);
  if (entry == kNoEntry || !IsHooked(entry) || version == nullptr) return {nullptr, 0};
  return LookUp(handle, {entry, name, version}, caller);
}

}  // extern "C"
}  // namespace tessera::fence
