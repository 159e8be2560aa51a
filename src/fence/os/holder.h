// Which call holds a lock, so that a thread that comes upon a lock of its own can tell two cases
// apart: the call was left by longjmp out of a signal handler, and will never give the lock back;
// or this is a signal handler that has interrupted it, and it will go on.
//
// The stack tells: what a handler runs lies below the call that it interrupted by at least a signal
// frame, what runs after a longjmp does not. On an alternate stack nothing can be told.
//
// Thread safety: none of its own. The holder alone writes what it holds.
#pragma once

#include <cstdint>

namespace tessera::fence::os {

// Never 0, and no other living thread's.
inline std::uint64_t ThisThread() {
  return reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
}

// Where the calling function's stack ends at this moment.
[[gnu::always_inline]] inline std::uint64_t StackNow() {
#if defined(__x86_64__)
  std::uint64_t here;
  asm volatile("mov %%rsp, %0" : "=r"(here));
  return here;
#else
  return reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
#endif
}

// Whether the call of this thread that stood at `then` is over, seen from `here`. 0 for `then`: not
// known, so no.
bool WasLeft(std::uint64_t then, std::uint64_t here);

}  // namespace tessera::fence::os
