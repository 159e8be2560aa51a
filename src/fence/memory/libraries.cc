#include "memory/libraries.h"

#include "compute/gate.h"
#include "memory/flat_map.h"
#include "memory/live.h"
#include "memory/spin_lock.h"

namespace tessera::fence {
namespace {

struct Library {
  std::uint64_t need = 0;
  bool handed_out = false;  // the program has kernels of it
};

SpinLock g_lock;
FlatMap<Library> g_libraries;
FlatMap<CUlibrary> g_kernels;  // those of libraries that are gone stay, and lead nowhere
std::uint32_t g_handed_out = 0;
// How many of those whose kernels were handed out are loaded in each context.
std::uint32_t g_loaded[detail::kRecords];

void Reset() {
  g_lock = SpinLock();
  g_libraries.Reset();
  g_kernels.Reset();
  g_handed_out = 0;
  for (std::uint32_t& count : g_loaded) count = 0;
}

std::uint64_t KeyOf(CUlibrary library) { return reinterpret_cast<std::uint64_t>(library); }

bool Lives(std::uint32_t context) {
  return __atomic_load_n(&detail::g_records[context].key, __ATOMIC_ACQUIRE) != 0;
}

// With the lock held, so that the last change decides.
void Review() {
  bool watch = false;
  bool any = false;
  for (std::uint32_t i = 1; i < detail::kRecords && g_handed_out != 0 && !watch; ++i) {
    if (!Lives(i)) continue;
    any = true;
    watch = g_loaded[i] < g_handed_out;
  }
  WatchLaunches(watch || (g_handed_out != 0 && !any));
}

// A launch that is watched in vain costs some time, one that is not watched may cost the limit.
template <typename Change>
bool Locked(Change&& change) {
  if (!g_lock.Lock()) {
    WatchLaunches(true);
    return false;
  }
  change();
  g_lock.Unlock();
  return true;
}

}  // namespace

// Handles are addresses of 47 bits; the number of a context has 10.
std::uint64_t LoadedKey(CUlibrary library, std::uint32_t context) {
  return KeyOf(library) ^ std::uint64_t{context} << 48;
}

bool NoteLibrary(CUlibrary library, std::uint64_t need) {
  ResetOnFork(Reset);
  bool noted = false;
  Locked([&] {
    noted = g_libraries.Insert(KeyOf(library),
                               {need < kMaxAllocation ? need : kMaxAllocation, false}) != nullptr;
  });
  return noted;
}

LibraryAnswer FindLibrary(CUlibrary library) {
  LibraryAnswer answer;
  answer.told = Locked([&] {
    const Library* known = g_libraries.Find(KeyOf(library));
    if (known != nullptr) answer = {.known = true, .library = library, .need = known->need};
  });
  return answer;
}

bool IsLoadedIn(CUlibrary library, std::uint32_t context) {
  Allocation charge;
  return HandleTable().Find(LoadedKey(library, context), &charge);
}

Loaded NoteLoaded(CUlibrary library, const Place& place, std::uint64_t need) {
  Allocation charge, stale;
  charge.size = need;
  charge.owner = place.context;
  charge.card = static_cast<std::uint32_t>(place.card);
  charge.kind = Kind::kContext;
  std::uint64_t opened = 0, stale_bytes = 0;
  Loaded result = Loaded::kNotRemembered;
  Locked([&] {
    if (IsLoadedIn(library, place.context)) {
      result = Loaded::kByAnother;
      return;
    }
    const bool noted = HandleTable().Insert(LoadedKey(library, place.context), charge, &opened,
                                            &stale, &stale_bytes);
    const Library* known = g_libraries.Find(KeyOf(library));
    if (noted && known != nullptr && known->handed_out) ++g_loaded[place.context];
    if (noted) result = Loaded::kNoted;
    Review();
  });
  return result;
}

bool NoteKernels(CUlibrary library, const CUkernel* kernels, unsigned count) {
  bool noted = true;
  const bool locked = Locked([&] {
    Library* known = g_libraries.Find(KeyOf(library));
    if (known == nullptr) return;
    for (unsigned i = 0; i < count; ++i) {
      noted = g_kernels.Insert(reinterpret_cast<std::uint64_t>(kernels[i]), library) != nullptr &&
              noted;
    }
    if (known->handed_out) return;
    known->handed_out = true;
    ++g_handed_out;
    for (std::uint32_t i = 1; i < detail::kRecords; ++i) {
      if (Lives(i) && IsLoadedIn(library, i)) ++g_loaded[i];
    }
    Review();
  });
  return locked && noted;
}

LibraryAnswer LibraryOf(CUfunction kernel) {
  LibraryAnswer answer;
  answer.told = Locked([&] {
    const CUlibrary* found = g_kernels.Find(reinterpret_cast<std::uint64_t>(kernel));
    if (found != nullptr) answer = {.known = true, .library = *found};
  });
  return answer;
}

TakenLibrary TakeLibrary(CUlibrary library, const TakenLibrary* former) {
  TakenLibrary taken;
  taken.handed_out = former != nullptr && former->handed_out;
  Locked([&] {
    const Library* known = former != nullptr ? nullptr : g_libraries.Find(KeyOf(library));
    taken.known = known != nullptr;
    if (taken.known) {
      taken.need = known->need;
      taken.handed_out = known->handed_out;
      g_libraries.Erase(KeyOf(library));
      if (taken.handed_out) --g_handed_out;
    }
    for (std::uint32_t i = 1; i < detail::kRecords && taken.count < kMostParts; ++i) {
      LoadedPart& part = taken.parts[taken.count];
      part.key = LoadedKey(library, i);
      if (!Lives(i) || !HandleTable().Take(part.key, &part.charge)) continue;
      ++taken.count;
      if (taken.handed_out) --g_loaded[i];
    }
    Review();
  });
  return taken;
}

void PutBackLibrary(CUlibrary library, const TakenLibrary& taken) {
  Locked([&] {
    if (taken.known) {
      g_libraries.Insert(KeyOf(library), {taken.need, taken.handed_out});
      if (taken.handed_out) ++g_handed_out;
    }
    for (unsigned i = 0; i < taken.count; ++i) {
      HandleTable().PutBack(taken.parts[i].key, taken.parts[i].charge);
      if (taken.handed_out) ++g_loaded[taken.parts[i].charge.owner];
    }
    Review();
  });
}

void ReviewLaunches() {
  Locked([] { Review(); });
}

void ForgetLoadedIn(std::uint32_t context) {
  Locked([&] { g_loaded[context] = 0; });
}

}  // namespace tessera::fence
