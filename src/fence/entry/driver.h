// The NVIDIA libraries that the process itself has loaded, and their functions.
//
// Thread safety: everything here may be called from any thread; the answers of several threads that
// come first agree. Invariants:
//   1. The fence never loads libcuda.so.1, and NVML only through LoadNvml.
//   2. The first libcuda.so.1 (libnvidia-ml.so.1) that is seen is *the* driver of the process for
//   good: it is pinned, so that
//      a program that closes and reopens it finds it at the same place.
#pragma once

#include "entry/table.h"

namespace tessera::fence {

// The driver's own function; nullptr if the library is not loaded or has no such function.
void* DriverFunction(EntryIndex entry);

// Takes `function` as the address of `entry` in a driver that exports no symbol for it.
void AdoptFunction(EntryIndex entry, void* function);

// What to hand out where the dynamic linker found `found` for `entry`: the wrapper if that is the
// driver's function, otherwise `found` (another library's function of that name).
void* Substitute(EntryIndex entry, void* found);

// A function of libc (or of libdl before glibc 2.34), not looked up through any interposer; nullptr
// if there is none.
void* LibcFunction(const char* name);

// Loads the management library beside a driver that is loaded, if nobody has yet. False where there
// is none.
bool LoadNvml();

}  // namespace tessera::fence
