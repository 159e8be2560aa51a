// Libraries of this process: what they need, and in which contexts they are loaded.
//
// The driver loads a library into a context when something of it is first asked for there, at the
// latest in the launch of one of its kernels. So that such a launch is charged, every launch takes
// the gate's slow path while a kernel is in the program's hands whose library is not loaded in some
// context that lives.
//
// Thread safety: every function from any thread; no lock is held across a driver call.
#pragma once

#include <cstdint>

#include "memory/contexts.h"
#include "memory/packed_allocation.h"
#include "real.h"

namespace tessera::fence {

// What of a library is loaded in one context, as it stands in the table of handles.
struct LoadedPart {
  std::uint64_t key = 0;
  Allocation charge;
};
inline constexpr unsigned kMostParts = 64;
struct TakenLibrary {
  bool known = false;
  bool handed_out = false;
  std::uint64_t need = 0;
  unsigned count = 0;
  LoadedPart parts[kMostParts];
};

// What cannot be remembered or looked up, for lack of memory or because the call has interrupted
// one that holds the lock, is refused by the caller: it may be code that nobody would be charged
// for.

// The driver has just made it; the caller has taken what was known of its handle. False where it
// cannot be remembered.
bool NoteLibrary(CUlibrary library, std::uint64_t need);
// `known` is false for one that was not made here. `need`: in each context.
struct LibraryAnswer {
  bool told = false;  // false: it could not be looked up
  bool known = false;
  CUlibrary library = nullptr;
  std::uint64_t need = 0;
};
LibraryAnswer FindLibrary(CUlibrary library);
bool IsLoadedIn(CUlibrary library, std::uint32_t context);
// It is loaded in the context now, charged with `need` if the answer is kNoted; the charge is the
// caller's otherwise.
enum class Loaded { kNoted, kByAnother, kNotRemembered };
Loaded NoteLoaded(CUlibrary library, const Place& place, std::uint64_t need);
std::uint64_t LoadedKey(CUlibrary library, std::uint32_t context);
// Kernels of the library that the program is about to be given: from now on they may be launched.
// False where they cannot be remembered.
bool NoteKernels(CUlibrary library, const CUkernel* kernels, unsigned count);
// The library of a kernel that was given out; not known for anything else, as functions of modules.
LibraryAnswer LibraryOf(CUfunction kernel);
// Before the driver unloads it: at most kMostParts of its parts; `former` asks for more of them.
// PutBackLibrary where the driver did not unload it.
TakenLibrary TakeLibrary(CUlibrary library, const TakenLibrary* former = nullptr);
void PutBackLibrary(CUlibrary library, const TakenLibrary& taken);

// A context has come or gone.
void ReviewLaunches();
void ForgetLoadedIn(std::uint32_t context);

// On the slow path of a launch: loads the kernel's library where it runs, or refuses to.
// `function` may be a kernel of a library or a function of a module.
CUresult LoadForLaunch(CUfunction function, CUstream stream);
// The same for the context given, the current one where that is null.
CUresult LoadForKernel(CUfunction function, CUcontext context);

}  // namespace tessera::fence
